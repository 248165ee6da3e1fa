s/spr-[0-9a-f]{16}/spr-NAME/

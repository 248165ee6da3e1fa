/* SPDX-License-Identifier: MIT */
/* channel.h - what channel.c does for every scheme's file. */
#ifndef SPR_TRANSPORT_CHANNEL_H
#define SPR_TRANSPORT_CHANNEL_H

#include "transport/transport.h"

/* The channel's address: its scheme and what stands behind it. -ENOMEM. */
int spr_transport_address_set(spr_channel *ch, const char *rest);

#endif /* SPR_TRANSPORT_CHANNEL_H */

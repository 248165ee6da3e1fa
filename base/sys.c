/* SPDX-License-Identifier: MIT */
/* sys.c - the one word behind which tests put another kernel. */
#include "base/sys.h"

spr_sys_fn spr_sys_hook;

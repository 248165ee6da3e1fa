/* SPDX-License-Identifier: MIT */
/*
 * exports.h - the version script of libsparring-files.so: the table, by the preprocessor alone.
 */
#include "base/calls.h"
#define NAME_CALL(name, kernel, way, access, shape, flags) name;
#define NAME_KERN(name, kernel, way, access, shape, flags)
#define NAME_QUIET(symbol, why) symbol;
{ global: SPR_CALLS(NAME_CALL, NAME_CALL, NAME_KERN) SPR_CALLS_QUIET(NAME_QUIET) local: *; };

/* SPDX-License-Identifier: Apache-2.0 */
/* The names of what is counted of the native interface. */
#include "base/native_count.h"

const char *const native_count_names[NATIVE_COUNTS] = {
	[NATIVE_PUTS] = "puts",
	[NATIVE_PUT_BYTES] = "put_bytes",
	[NATIVE_FAR_PUTS] = "far_puts",
	[NATIVE_GETS] = "gets",
	[NATIVE_GET_BYTES] = "get_bytes",
	[NATIVE_FAR_GETS] = "far_gets",
	[NATIVE_ATOMICS] = "atomics",
	[NATIVE_NOTES_SENT] = "notifications_sent",
	[NATIVE_NOTES_COME] = "notifications_received",
	[NATIVE_IMPORTS] = "imports",
	[NATIVE_MAPPED] = "imports_mapped",
	[NATIVE_FULL] = "redirections_full",
	[NATIVE_PARTIAL] = "redirections_partial",
	[NATIVE_NONE] = "redirections_none",
	[NATIVE_HITS] = "registration_hits",
	[NATIVE_MISSES] = "registration_misses",
	[NATIVE_EVICTIONS] = "registration_evictions",
	[NATIVE_BROKEN] = "registrations_broken",
	[NATIVE_MESSAGES] = "messages_sent",
	[NATIVE_IN_PLACE] = "messages_in_place",
	[NATIVE_MESSAGES_COME] = "messages_received",
	[NATIVE_MESSAGE_BYTES] = "message_bytes",
};

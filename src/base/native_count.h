/* SPDX-License-Identifier: Apache-2.0 */
/* What is counted of the native interface: of each connection, and of a process. */
#ifndef VD_BASE_NATIVE_COUNT_H
#define VD_BASE_NATIVE_COUNT_H

/* Of what this end has done, but for the notifications and messages that have come. */
enum native_count {
	NATIVE_PUTS,
	NATIVE_PUT_BYTES,
	NATIVE_FAR_PUTS, /* of them: written by a device to memory on another host */
	NATIVE_GETS,
	NATIVE_GET_BYTES,
	NATIVE_FAR_GETS, /* gets: those that a device brought from another host */
	NATIVE_ATOMICS,
	NATIVE_NOTES_SENT, /* notifications */
	NATIVE_NOTES_COME,
	NATIVE_IMPORTS,
	NATIVE_MAPPED, /* imports of memory that was mapped */
	NATIVE_FULL,   /* redirections, by what was redirected */
	NATIVE_PARTIAL,
	NATIVE_NONE,
	NATIVE_HITS, /* registrations of a program's memory that were found, */
	NATIVE_MISSES,
	NATIVE_EVICTIONS, /* given up for others, */
	NATIVE_BROKEN,	  /* found to be of memory that has gone */
	NATIVE_MESSAGES,  /* that were sent */
	NATIVE_IN_PLACE,  /* of these: seen by the peer where they were written */
	NATIVE_MESSAGES_COME,
	NATIVE_MESSAGE_BYTES, /* sent */
	NATIVE_COUNTS
};
/* As reports have them. */
extern const char *const native_count_names[NATIVE_COUNTS];

#endif

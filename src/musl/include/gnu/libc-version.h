/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing: musl tells no version. */

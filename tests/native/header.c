/* SPDX-License-Identifier: Apache-2.0 */
/* The header alone, as C99 and as C++, with all warnings; and each function is there to be linked. */
#include <viaduct/viaduct.h>

typedef void (*any_fn)(void);
#define FN(name) ((any_fn)(name))

int main(void)
{
	any_fn all[] = {
		FN(vd_connect),
		FN(vd_listen),
		FN(vd_accept),
		FN(vd_listener_fd),
		FN(vd_listener_close),
		FN(vd_adopt),
		FN(vd_close),
		FN(vd_fd),
		FN(vd_path),
		FN(vd_reason),
		FN(vd_export),
		FN(vd_unexport),
		FN(vd_import),
		FN(vd_remote_size),
		FN(vd_remote_rights),
		FN(vd_unimport),
		FN(vd_put),
		FN(vd_flush),
		FN(vd_get),
		FN(vd_fetch_add),
		FN(vd_compare_swap),
		FN(vd_wait),
		FN(vd_wait_any),
		FN(vd_on_notify),
		FN(vd_alloc),
		FN(vd_free),
		FN(vd_forget),
		FN(vd_remote_reason),
		FN(vd_redirect),
		FN(vd_redirect_end),
		FN(vd_reserve),
		FN(vd_commit),
		FN(vd_peek),
		FN(vd_release),
	};
	unsigned i;

	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!all[i])
			return 1;
	return 0;
}

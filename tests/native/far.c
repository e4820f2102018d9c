/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the tests that are in a library. */
int native_far_main(int argc, char **argv);

int main(int argc, char **argv)
{
	return native_far_main(argc, argv);
}

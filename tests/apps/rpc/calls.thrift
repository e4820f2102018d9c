/* SPDX-License-Identifier: Apache-2.0 */
/* The service of Thrift's test. */
exception Refused {
	1: i32 code,
	2: string why,
}

struct Tree {
	1: i32 number,
	2: string name,
	3: list<Tree> below,
}

service Base {
	i32 next(1: i32 n),
}

service Calls extends Base {
	binary echo(1: binary data),
	Tree mirror(1: Tree tree),
	map<string, i64> count(1: list<string> words),
	void refuse(1: i32 code) throws (1: Refused refused),
	void fail(),
	oneway void note(1: i32 n),
	i64 noted(),
}

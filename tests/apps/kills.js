/* SPDX-License-Identifier: Apache-2.0 */
/* One end of kills.py: plays connections as it is told on its standard input, and checks each byte.
 *
 * usage: node kills.js [RECORD]
 */
'use strict';
const fs = require('fs');
const net = require('net');

/* The table's length is no multiple of any size of a message, so that a byte in a wrong place shows. */
const PERIOD = 65521, MOST = 65536, HEADER = 8, TURNS = 64;
const table = Buffer.alloc(PERIOD + MOST);
const record = process.argv.length > 2 ? fs.openSync(process.argv[2], 'r+') : -1;
let open = 0;

for (let i = 0, x = 1; i < table.length; i++) {
	x = (Math.imul(x, 1103515245) + 12345) & 0x7fffffff;
	table[i] = i < PERIOD ? x >>> 16 : table[i - PERIOD];
}

/* The bytes of one direction of a connection, from `at`. */
function bytesOf(id, way, at, n) {
	const from = (at + id * 4099 + way * 17011) % PERIOD;
	return table.subarray(from, from + n);
}

class End {
	constructor(c, id, mode, way) {
		this.c = c;
		this.id = id;
		this.mode = mode;
		this.way = way;
		this.seed = (id * 2 + way + 1) >>> 0;
		this.attempted = this.sent = this.received = this.wrong = this.wanted = 0;
		/* Most connections begin with turns, by which they earn the fast path. */
		this.turns = id % 4 ? TURNS : 0;
	}

	/* The size of the next message: of all magnitudes. */
	next() {
		this.seed = (Math.imul(this.seed, 1664525) + 1013904223) >>> 0;
		return 1 + (this.seed >>> 8) % (1 << ((this.seed >>> 28) + 1));
	}

	/* In the file, where the death of this process leaves it: sent, received, wrong. */
	note(word, value) {
		if (record < 0)
			return;
		const b = Buffer.alloc(8);
		b.writeBigUInt64LE(BigInt(value));
		fs.writeSync(record, b, 0, 8, (this.id * 3 + word) * 8);
	}

	write(bytes, then) {
		if (this.c.readableEnded || this.c.destroyed)
			return;
		this.attempted += bytes.length;
		this.c.write(bytes, (error) => {
			if (error)
				return;
			this.sent += bytes.length;
			this.note(0, this.sent);
			if (then)
				then();
		});
	}

	writes(way) {
		this.write(bytesOf(this.id, way, this.attempted, this.next()), () => this.writes(way));
	}

	/* A connection may bring more at once than the table has in a row. */
	got(way, bytes) {
		for (let at = 0; at < bytes.length; at += MOST) {
			const part = bytes.subarray(at, at + MOST);
			if (!part.equals(bytesOf(this.id, way, this.received, part.length))) {
				this.wrong = 1;
				this.note(2, 1);
				this.c.destroy();
				return;
			}
			this.received += part.length;
		}
		this.note(1, this.received);
	}

	asks() {
		const n = this.next();
		this.wanted = this.received + n;
		this.write(bytesOf(this.id, 0, this.attempted, n));
	}

	/* Both ends have made their turns. */
	begin() {
		if (this.mode === 'b' || (this.mode !== 'e' && (this.mode === 'w') === (this.way === 0)))
			this.writes(this.way);
		else if (this.mode === 'e' && this.way === 0)
			this.asks();
	}

	/* The bytes of turns, each of which is answered; returns what comes behind them. */
	turn(bytes) {
		let at = 0;

		for (; this.turns > 0 && at < bytes.length; at++) {
			if (bytes[at] !== 0) {
				this.wrong = 1;
				this.note(2, 1);
			}
			this.turns--;
			if (this.way === 1 || this.turns > 0)
				this.c.write(Buffer.alloc(1));
			if (this.turns === 0)
				this.begin();
		}
		return bytes.subarray(at);
	}

	take(all) {
		const bytes = this.turn(all);

		if (bytes.length === 0)
			return;
		this.got(this.mode === 'e' ? 0 : 1 - this.way, bytes);
		if (this.mode === 'e' && this.way === 1)
			this.write(bytes);
		else if (this.mode === 'e' && this.received === this.wanted)
			this.asks();
	}

	play() {
		this.c.on('data', (bytes) => this.take(bytes));
		if (this.turns === 0)
			this.begin();
		else if (this.way === 0)
			this.c.write(Buffer.alloc(1));
	}
}

function name(error) {
	if (!error)
		return 'eof';
	return { ECONNRESET: 'reset', EPIPE: 'reset', ECONNREFUSED: 'refused' }[error.code] || error.code;
}

function say(e, error) {
	console.log(`ended ${e.id} ${name(error)} ${e.attempted} ${e.sent} ${e.received} ${e.wrong}`);
}

/* `way` is 0 for the end that has dialled, whose part the mode names. */
function begin(c, id, mode, way) {
	const e = new End(c, id, mode, way);
	let error = null;

	c.setNoDelay();
	c.on('error', (what) => { error = what; });
	c.on('close', () => {
		open--;
		say(e, error);
	});
	return e;
}

function accepted(c) {
	let head = Buffer.alloc(0);
	const ended = () => { open--; };

	open++;
	c.on('error', () => {});
	c.on('close', ended);
	c.on('data', function first(bytes) {
		head = Buffer.concat([head, bytes]);
		if (head.length < HEADER)
			return;
		c.off('data', first);
		c.off('close', ended);
		const e = begin(c, Number(head.toString('latin1', 1, HEADER)), String.fromCharCode(head[0]), 1);
		e.play();
		if (head.length > HEADER)
			c.emit('data', head.subarray(HEADER));
	});
}

function dial(port, mode, id) {
	const c = net.connect({ port, host: '127.0.0.1' });
	const e = begin(c, id, mode, 0);

	open++;
	c.on('connect', () => {
		c.write(mode + String(id).padStart(HEADER - 1, '0'));
		e.play();
	});
}

function obey(line) {
	const words = line.split(' ');

	if (words[0] === 'dial')
		dial(Number(words[1]), words[2], Number(words[3]));
	else
		console.log(`open ${open}`);
}

const server = net.createServer(accepted);
server.listen({ port: 0, host: '127.0.0.1', backlog: 500 }, () => console.log(`port ${server.address().port}`));
require('readline').createInterface({ input: process.stdin }).on('line', obey).on('close', () => process.exit(0));

/* SPDX-License-Identifier: Apache-2.0 */
/* Node's side of bench/programs/web.py: echo and http over TCP or AF_UNIX, and how many round trips a second.
 *
 * usage: node echo.js server echo|http PORT|PATH
 *        node echo.js client echo|http PORT|PATH CONNECTIONS SECONDS
 */
'use strict';
const http = require('http');
const net = require('net');

const BYTES = Buffer.alloc(64, 'x');
const WARM_UP_MS = 300;
const [role, mode, place, connections, seconds] = process.argv.slice(2);
const at = /^\d+$/.test(place) ? { port: Number(place), host: '127.0.0.1' } : { path: place };
let count = 0;

function serve() {
	const server = mode === 'http' ?
		http.createServer((_, answer) => answer.end(BYTES)) :
		net.createServer((c) => {
			c.setNoDelay();
			c.on('error', () => c.destroy()); /* clients end in the middle */
			c.on('data', (bytes) => c.write(bytes));
		});
	server.listen(at);
}

function echo() {
	let left = BYTES.length;
	const c = net.connect(at, () => {
		c.setNoDelay();
		c.write(BYTES);
	});
	c.on('data', (bytes) => {
		left -= bytes.length;
		if (left > 0)
			return;
		left = BYTES.length;
		count++;
		c.write(BYTES);
	});
}

function ask(agent) {
	const where = at.path ? { socketPath: at.path } : at;
	http.get({ ...where, agent }, (answer) => {
		answer.resume();
		answer.on('end', () => {
			count++;
			ask(agent);
		});
	});
}

function measure() {
	const agent = new http.Agent({ keepAlive: true, maxSockets: Number(connections) });
	for (let i = 0; i < Number(connections); i++)
		mode === 'http' ? ask(agent) : echo();
	setTimeout(() => {
		const before = count, from = process.hrtime.bigint();
		const end = () => {
			/* On a busy machine the other end may not have run yet. */
			if (count === before) {
				setTimeout(end, 10);
				return;
			}
			const passed_s = Number(process.hrtime.bigint() - from) / 1e9;
			console.log(`${((count - before) / passed_s).toFixed(3)} round trips a second`);
			process.exit(0);
		};
		setTimeout(end, Number(seconds) * 1000);
	}, WARM_UP_MS);
}

role === 'server' ? serve() : measure();

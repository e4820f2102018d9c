#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PHP as packaged, opcache included: a client of Redis, streams and curl; php -S; php-fpm behind nginx."""
import glob
import os
import signal

import harness

PHP, NGINX, REDIS = harness.need("php", "nginx", "redis-server")
FPM = harness.need(*(sorted(glob.glob("/usr/sbin/php-fpm*"))[-1:] or ["php-fpm"]))

# Echoes what is posted; otherwise makes so many bytes, partly from Redis.
SITE = r"""<?php
if ($_SERVER['REQUEST_METHOD'] === 'POST') {
    echo file_get_contents('php://input');
    return;
}
$redis = new Redis();
$redis->pconnect('127.0.0.1', REDIS_PORT);
$n = (int) $_GET['n'];
$redis->set("page$n", str_repeat("<$n>", 100));
echo $redis->get("page$n"), str_repeat("p", $n);
"""

CLIENT = r"""<?php
[, $redis_port, $site, $builtin] = $argv;
echo extension_loaded('Zend OPcache') ? "opcache\n" : "no opcache\n";

$redis = new Redis();
$redis->connect('127.0.0.1', (int) $redis_port);
foreach ([0, 1, 100, 5000, 65536, 2000000] as $n) {
    $redis->set("k$n", str_repeat(chr(65 + $n % 26), $n));
    echo $n, ' ', hash('sha256', $redis->get("k$n")), "\n";
}
$pipe = $redis->multi(Redis::PIPELINE);
for ($i = 0; $i < 2000; $i++)
    $pipe->incr('count');
echo array_sum($pipe->exec()), "\n";

# Kept connections by curl, several at a time.
$multi = curl_multi_init();
$all = [];
foreach ([$site, $builtin] as $base) {
    for ($i = 0; $i < 12; $i++) {
        $one = curl_init("$base/index.php?n=" . $i * 9001);
        if ($i % 3 == 2)
            curl_setopt($one, CURLOPT_POSTFIELDS, str_repeat('body', $i * 9001));
        curl_setopt($one, CURLOPT_RETURNTRANSFER, true);
        curl_setopt($one, CURLOPT_HTTPHEADER, ['Expect:']);
        curl_multi_add_handle($multi, $one);
        $all[] = $one;
    }
}
do {
    curl_multi_exec($multi, $active);
    curl_multi_select($multi);
} while ($active);
foreach ($all as $one)
    echo curl_getinfo($one, CURLINFO_RESPONSE_CODE), ' ',
        hash('sha256', curl_multi_getcontent($one)), "\n";

# Streams among themselves: stream_select, half-close.
$listener = stream_socket_server('tcp://127.0.0.1:0');
$a = stream_socket_client('tcp://' . stream_socket_get_name($listener, false));
$b = stream_socket_accept($listener);
stream_set_blocking($a, false);
stream_set_blocking($b, false);
$out = str_repeat('0123456789', 50000);
$sent = 0;
$got = '';
while (!feof($b)) {
    $read = [$b];
    $write = $sent < strlen($out) ? [$a] : [];
    $except = null;
    stream_select($read, $write, $except, null);
    if ($write) {
        $sent += fwrite($a, substr($out, $sent, 30000));
        if ($sent == strlen($out))
            stream_socket_shutdown($a, STREAM_SHUT_WR);
    }
    if ($read)
        $got .= fread($b, 8192);
}
echo strlen($got), ' ', $got === $out ? 'equal' : 'different', "\n";
stream_set_blocking($a, true);
fwrite($b, "answer\n");
echo fgets($a);
"""

FPM_CONF = """
[global]
error_log = {dir}/fpm.log
daemonize = no
[www]
{user}
listen = 127.0.0.1:{fpm}
pm = static
pm.max_children = 2
"""

NGINX_CONF = """
{user}
worker_processes 1;
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_max_body_size 10m;
  client_body_temp_path {dir}/body;
  proxy_temp_path {dir}/proxy;
  fastcgi_temp_path {dir}/fastcgi;
  uwsgi_temp_path {dir}/uwsgi;
  scgi_temp_path {dir}/scgi;
  upstream fpm {{ server 127.0.0.1:{fpm}; keepalive 1; }}
  server {{
    listen 127.0.0.1:{site};
    location / {{
      fastcgi_pass fpm;
      fastcgi_keep_conn on;
      fastcgi_param SCRIPT_FILENAME {dir}/index.php;
      fastcgi_param REQUEST_METHOD $request_method;
      fastcgi_param QUERY_STRING $query_string;
      fastcgi_param CONTENT_LENGTH $content_length;
      fastcgi_param CONTENT_TYPE $content_type;
    }}
  }}
}}
"""


def scenario(run):
    redis, fpm, site, builtin = (harness.free_port() for _ in range(4))
    root = os.geteuid() == 0
    run.write("index.php", SITE.replace("REDIS_PORT", str(redis)))
    run.server([REDIS, "--port", str(redis), "--bind", "127.0.0.1", "--save", "",
                "--appendonly", "no", "--dir", run.dir], redis)
    conf = run.write("fpm.conf", FPM_CONF.format(
        dir=run.dir, fpm=fpm, user="user = nobody\ngroup = nogroup" if root else ""))
    pool = run.server([FPM, "-F", "-y", conf], fpm)
    conf = run.write("nginx.conf", NGINX_CONF.format(
        dir=run.dir, fpm=fpm, site=site, user="user nobody nogroup;" if root else ""))
    run.server([NGINX, "-c", conf, "-e", run.path("error.log")], site)
    run.server([PHP, "-d", "opcache.enable_cli=1", "-S", f"127.0.0.1:{builtin}", "-t", run.dir],
               builtin)
    result = run.client([PHP, "-d", "opcache.enable_cli=1", run.write("client.php", CLIENT),
                         str(redis), f"http://127.0.0.1:{site}", f"http://127.0.0.1:{builtin}"])
    # Its children are killed at SIGTERM.
    run.stop(pool, signal.SIGQUIT)
    if run.mode == "both":
        check(run)
    return result


def check(run):
    """The extensions took nothing to TCP; php and php-fpm have direct connections."""
    lines = [line for line in run.report() if line["program"].startswith("php")]
    if any("deepbind" in line["reasons"] for line in lines):
        raise harness.Failure("deepbind in " + repr(lines))
    direct = {line["program"] for line in lines if line["tx_direct_bytes"]}
    if len(direct) < 2:
        raise harness.Failure(f"directly moved bytes {direct} alone: {lines!r}")


# The servers talk with each other, and PHP's streams with themselves.
harness.main(scenario, alone=True)

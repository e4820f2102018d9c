#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PHP's mysqli and PDO with MariaDB, pgsql and PDO with PostgreSQL: prepared statements, large values, copies,
queries that do not wait, transactions, persistent connections."""
import glob
import os
import subprocess
import sys

import harness

PHP, MARIADB, INSTALL = harness.need("php", "mariadbd", "mariadb-install-db")
harness.need("setpriv", "my_print_defaults")
POSTGRES = (sorted(glob.glob("/usr/lib/postgresql/*/bin")) or [""])[-1]
for name in ("initdb", "postgres", "pg_isready"):
    if not os.path.exists(os.path.join(POSTGRES, name)):
        print(f"skipped: {name} is missing")
        sys.exit(harness.SKIP)
HAS = subprocess.run([PHP, "-m"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
for module in ("mysqli", "pdo_mysql", "pgsql", "pdo_pgsql"):
    if module not in HAS:
        print(f"skipped: PHP's {module} is missing")
        sys.exit(harness.SKIP)
if os.geteuid() != 0:
    print("skipped: only root may start PostgreSQL as another user")
    sys.exit(harness.SKIP)

MYSQL = r"""<?php
[, $port] = $argv;
mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
$db = new mysqli('127.0.0.1', 'php', '', 'test', (int) $port);
$db->query('create table t (a int primary key, b longblob)');
$put = $db->prepare('insert into t values (?, ?)');
foreach ([0, 1, 255, 65535, 70000, 1000000] as $i => $n) {
    $text = str_repeat(chr(97 + $i), $n);
    $put->bind_param('is', $i, $text);
    $put->execute();
}
foreach ($db->query('select a, b from t order by a') as $row)
    echo $row['a'], ' ', strlen($row['b']), ' ', hash('sha256', $row['b']), "\n";
$long = $db->prepare('update t set b = ? where a = 0');
$nothing = null;
$long->bind_param('b', $nothing);
for ($i = 0; $i < 100; $i++)
    $long->send_long_data(0, str_repeat("$i", 1000));
$long->execute();
echo $db->query('select sha2(b, 256) from t where a = 0')->fetch_row()[0], "\n";
try {
    $db->query('insert into t values (1, "twice")');
} catch (mysqli_sql_exception $e) {
    echo $e->getCode(), "\n";
}
# Unbuffered, and given up in the middle.
$all = $db->query('select x.b from t x, t y', MYSQLI_USE_RESULT);
echo strlen($all->fetch_row()[0]) >= 0 ? "one\n" : '';
$all->free();
$db->multi_query('select 1; select 2; select repeat("m", 300000)');
do {
    echo strlen($db->store_result()->fetch_row()[0]), "\n";
} while ($db->more_results() && $db->next_result());
# Several at a time, by poll.
$several = [];
for ($i = 0; $i < 6; $i++) {
    $several[$i] = new mysqli('127.0.0.1', 'php', '', 'test', (int) $port);
    for ($j = 0; $j < 30; $j++)
        $several[$i]->query('select 1')->free();
    $several[$i]->query("select $i, sleep(0.0$i), repeat('x', 50000 * $i)", MYSQLI_ASYNC);
}
$answers = [];
while (count($answers) < 6) {
    $read = $error = $reject = array_diff_key($several, $answers);
    if (!mysqli_poll($read, $error, $reject, 10))
        continue;
    foreach ($read as $one) {
        $row = $one->reap_async_query()->fetch_row();
        $answers[$row[0]] = strlen($row[2]);
    }
}
ksort($answers);
echo implode(' ', $answers), "\n";
$kept = new mysqli('p:127.0.0.1', 'php', '', 'test', (int) $port);
$id = $kept->thread_id;
$kept->close();
$again = new mysqli('p:127.0.0.1', 'php', '', 'test', (int) $port);
echo $again->thread_id === $id ? "kept\n" : "new\n";
$pdo = new PDO("mysql:host=127.0.0.1;port=$port;dbname=test", 'php', '');
$pdo->beginTransaction();
$pdo->exec('delete from t');
$pdo->rollBack();
$count = $pdo->prepare('select count(*) from t where a < ?');
for ($i = 0; $i < 50; $i++) {
    $count->execute([$i]);
    echo $count->fetchColumn();
}
echo "\n";
"""

PGSQL = r"""<?php
[, $port] = $argv;
$db = pg_connect("host=127.0.0.1 port=$port user=postgres dbname=postgres");
pg_query($db, 'create table t (a int, b text)');
foreach ([0, 1, 8191, 65536, 1000000] as $i => $n)
    pg_query_params($db, 'insert into t values ($1, $2)', [$i, str_repeat(chr(97 + $i), $n)]);
foreach (pg_fetch_all(pg_query($db, 'select a, b from t order by a')) as $row)
    echo $row['a'], ' ', strlen($row['b']), ' ', hash('sha256', $row['b']), "\n";
$rows = [];
for ($i = 0; $i < 5000; $i++)
    $rows[] = "$i\t" . str_repeat('y', $i % 700) . "\n";
pg_copy_from($db, 't', $rows);
echo hash('sha256', implode('', pg_copy_to($db, 't'))), "\n";
# Without waiting.
pg_socket($db);
for ($i = 0; $i < 40; $i++) {
    pg_send_query_params($db, 'select $1::int * 2, repeat($2, 20000)', [$i, 'z']);
    while (pg_connection_busy($db)) {
        $read = [pg_socket($db)];
        $none = [];
        stream_select($read, $none, $none, 10);
        pg_consume_input($db);
    }
    $got = pg_fetch_row(pg_get_result($db));
    pg_get_result($db);
    echo $got[0], strlen($got[1]), ' ';
}
echo "\n";
$other = pg_connect("host=127.0.0.1 port=$port user=postgres dbname=postgres", PGSQL_CONNECT_FORCE_NEW);
pg_query($db, 'listen here');
for ($i = 0; $i < 20; $i++)
    pg_query($other, "notify here, 'note $i'");
pg_query($db, 'select 1');
while ($note = pg_get_notify($db))
    echo $note['payload'], ' ';
echo "\n";
pg_query($db, 'begin');
$large = pg_lo_create($db);
$handle = pg_lo_open($db, $large, 'w');
for ($i = 0; $i < 50; $i++)
    pg_lo_write($handle, str_repeat("$i,", 3000));
pg_lo_close($handle);
$handle = pg_lo_open($db, $large, 'r');
$content = '';
while (($piece = pg_lo_read($handle, 10000)) !== '' && $piece !== false)
    $content .= $piece;
echo strlen($content), ' ', hash('sha256', $content), "\n";
pg_query($db, 'commit');
$pdo = new PDO("pgsql:host=127.0.0.1;port=$port;dbname=postgres;user=postgres",
               options: [PDO::ATTR_PERSISTENT => true]);
$sum = $pdo->prepare('select sum(length(b)) from t where a <= ?');
for ($i = 0; $i < 50; $i++) {
    $sum->execute([$i]);
    echo $sum->fetchColumn(), ' ';
}
try {
    $pdo->query('select 1/0');
} catch (PDOException $e) {
    echo $e->getCode(), "\n";
}
"""


def mariadb(run):
    port, data = harness.free_port(), run.path("mariadb")
    options = ["--no-defaults", f"--datadir={data}", "--user=root"]
    made = subprocess.run([INSTALL, *options, "--auth-root-authentication-method=normal",
                           "--skip-test-db"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    if made.returncode:
        raise harness.Failure(f"mariadb-install-db: {made.stdout!r}")
    first = run.write("first.sql", "create database test;\ncreate user php@'%';\n"
                      "grant all on test.* to php@'%';\n")
    server = run.server([MARIADB, *options, f"--port={port}", "--bind-address=127.0.0.1",
                f"--socket={run.path('mariadb.sock')}", f"--pid-file={run.path('mariadb.pid')}",
                "--skip-name-resolve", f"--init-file={first}", "--innodb-flush-log-at-trx-commit=0",
                "--innodb-buffer-pool-size=16M", "--max-allowed-packet=32M"], port)
    run.wait_for(lambda: "ready for connections" in run.logs(), server, "MariaDB to be ready")
    return run.client([PHP, run.write("mysql.php", MYSQL), str(port)])


def postgres(run):
    port, data = harness.free_port(), run.path("postgres")
    os.mkdir(data)
    subprocess.run(["chown", "postgres", data], check=True)
    made = subprocess.run(["setpriv", "--reuid", "postgres", "--regid", "postgres",
                           "--clear-groups", "--", f"{POSTGRES}/initdb", "-D", data, "--no-sync",
                           "-A", "trust", "-E", "UTF8", "--locale=C"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, cwd="/", check=False)
    if made.returncode:
        raise harness.Failure(f"initdb: {made.stdout!r}")
    server = run.server([f"{POSTGRES}/postgres", "-D", data, "-p", str(port), "-c",
                         "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c",
                         "fsync=off"], port, user="postgres", cwd="/")
    run.wait_for(lambda: subprocess.run(
        [f"{POSTGRES}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)], cwd="/",
        check=False).returncode == 0, server, "PostgreSQL to be ready")
    return run.client([PHP, run.write("pgsql.php", PGSQL), str(port)])


def scenario(run):
    return mariadb(run), postgres(run)


harness.main(scenario)

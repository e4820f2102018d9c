/* SPDX-License-Identifier: Apache-2.0 */
/* Java's sockets: a selector that echoes, an HTTP server, and clients of every kind. */
import com.sun.net.httpserver.HttpServer;
import java.io.*;
import java.net.*;
import java.net.http.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.nio.file.*;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;

public class Echo {
	static final InetAddress HOST = InetAddress.getLoopbackAddress();

	static byte[] pattern(int size, int seed) {
		byte[] data = new byte[size];
		for (int i = 0; i < size; i++)
			data[i] = (byte)(i * 31 + (i >> 8) + seed);
		return data;
	}

	static String sha(byte[] data) throws Exception {
		byte[] sum = MessageDigest.getInstance("SHA-256").digest(data);
		return HexFormat.of().formatHex(sum, 0, 8);
	}

	static void echo(SelectionKey key, Selector selector) throws IOException {
		SocketChannel c = (SocketChannel)key.channel();
		ByteBuffer held = (ByteBuffer)key.attachment();
		try {
			int n = c.read(held);
			held.flip();
			c.write(held);
			boolean rest = held.hasRemaining();
			held.compact();
			if (n < 0 && !rest) {
				c.close();
				return;
			}
			int in = n >= 0 && held.hasRemaining() ? SelectionKey.OP_READ : 0;
			key.interestOps(in | (rest ? SelectionKey.OP_WRITE : 0));
		} catch (IOException e) {
			c.close(); // a client that resets
		}
	}

	static void serve(int port) throws Exception {
		HttpServer http = HttpServer.create(new InetSocketAddress(HOST, port + 1), 50);
		http.setExecutor(Executors.newFixedThreadPool(4));
		http.createContext("/", exchange -> {
			byte[] body = exchange.getRequestBody().readAllBytes();
			int size = Integer.parseInt(exchange.getRequestURI().getPath().substring(1));
			byte[] answer = body.length > 0 ? body : pattern(size, size);
			exchange.sendResponseHeaders(200, answer.length == 0 ? -1 : answer.length);
			try (OutputStream out = exchange.getResponseBody()) {
				out.write(answer);
			}
		});
		http.start();
		Selector selector = Selector.open();
		ServerSocketChannel listener = ServerSocketChannel.open();
		listener.bind(new InetSocketAddress(HOST, port), 100).configureBlocking(false);
		listener.register(selector, SelectionKey.OP_ACCEPT);
		while (true) {
			selector.select();
			for (SelectionKey key : selector.selectedKeys()) {
				if (!key.isValid())
					continue;
				if (!key.isAcceptable()) {
					echo(key, selector);
					continue;
				}
				SocketChannel c = listener.accept();
				if (c == null)
					continue;
				c.configureBlocking(false);
				ByteBuffer held = ByteBuffer.allocateDirect(60000);
				c.register(selector, SelectionKey.OP_READ, held);
			}
			selector.selectedKeys().clear();
		}
	}

	/* Small messages to and fro, then a large one both ways at once, and half-close. */
	static String blocking(int port, int seed) throws Exception {
		try (Socket s = new Socket(HOST, port)) {
			s.setTcpNoDelay(true);
			s.setSoTimeout(60000);
			InputStream in = s.getInputStream();
			OutputStream out = s.getOutputStream();
			for (int i = 0; i < 100; i++) {
				byte[] data = pattern(1 + i * i, seed + i);
				out.write(data);
				if (!Arrays.equals(in.readNBytes(data.length), data))
					throw new IOException("message " + i + " of " + seed);
			}
			byte[] large = pattern(3_000_000 + seed, seed);
			Future<?> writer = POOL.submit(() -> {
				out.write(large);
				s.shutdownOutput();
				return null;
			});
			byte[] back = in.readAllBytes();
			writer.get();
			if (!Arrays.equals(back, large))
				throw new IOException("large of " + seed + ": " + back.length);
			return sha(back);
		}
	}

	/* A file by transferTo and transferFrom, which use sendfile where they can. */
	static String files(int port) throws Exception {
		Path source = Files.createTempFile("viaduct", "in");
		Path target = Files.createTempFile("viaduct", "out");
		byte[] data = pattern(2_500_000, 5);
		Files.write(source, data);
		try (SocketChannel c = SocketChannel.open(new InetSocketAddress(HOST, port));
		     FileChannel from = FileChannel.open(source);
		     FileChannel to = FileChannel.open(target, StandardOpenOption.WRITE)) {
			Future<?> writer = POOL.submit(() -> {
				for (long at = 0; at < data.length;)
					at += from.transferTo(at, data.length - at, c);
				c.shutdownOutput();
				return null;
			});
			for (long at = 0, n; at < data.length; at += n)
				if ((n = to.transferFrom(c, at, data.length - at)) == 0)
					throw new IOException("short file: " + at);
			writer.get();
			int end = c.read(ByteBuffer.allocate(1));
			return end + " " + sha(Files.readAllBytes(target));
		} finally {
			Files.delete(source);
			Files.delete(target);
		}
	}

	/* Scattered and gathered, through Java's asynchronous channels (epoll, one shot). */
	static String asynchronous(int port) throws Exception {
		try (AsynchronousSocketChannel c = AsynchronousSocketChannel.open()) {
			c.connect(new InetSocketAddress(HOST, port)).get();
			MessageDigest all = MessageDigest.getInstance("SHA-256");
			for (int i = 0; i < 100; i++) {
				ByteBuffer out = ByteBuffer.wrap(pattern(1 + i * 301, i));
				ByteBuffer in = ByteBuffer.allocate(out.capacity());
				while (out.hasRemaining())
					c.write(out).get();
				while (in.hasRemaining())
					if (c.read(in).get() < 0)
						throw new IOException("end at " + i);
				all.update(in.array());
			}
			return HexFormat.of().formatHex(all.digest(), 0, 8);
		}
	}

	interface Reader {
		void read() throws Exception;
	}

	/* How a thread that sleeps in read is stopped; what it sees. */
	static String stopped(Reader reader, Callable<?> stop, boolean interrupt)
	throws Exception {
		CompletableFuture<String> seen = new CompletableFuture<>();
		Thread t = new Thread(() -> {
			try {
				reader.read();
				seen.complete("read");
			} catch (Exception e) {
				seen.complete(e.getClass().getSimpleName());
			}
		});
		t.start();
		Thread.sleep(50); // most often asleep by now; the result is the same if not
		stop.call();
		if (interrupt)
			t.interrupt();
		return seen.get(60, TimeUnit.SECONDS);
	}

	/* Close and interrupt while another thread reads, and a timeout. */
	static String cut(int port) throws Exception {
		List<String> seen = new ArrayList<>();
		for (int i = 0; i < 3; i++) {
			Socket s = new Socket(HOST, port);
			InputStream in = s.getInputStream();
			for (int j = 0; j < 30; j++) {
				s.getOutputStream().write(j);
				in.read();
			}
			seen.add(stopped(() -> in.read(), () -> { s.close(); return 0; }, false));
			SocketChannel c = SocketChannel.open(new InetSocketAddress(HOST, port));
			ByteBuffer one = ByteBuffer.allocate(1);
			for (int j = 0; j < 30; j++) {
				c.write(ByteBuffer.wrap(new byte[] { 1 }));
				c.read(one.clear());
			}
			if (i == 0)
				seen.add(stopped(() -> c.read(one.clear()), () -> 0, true));
			else
				seen.add(stopped(() -> c.read(one.clear()),
						 () -> { c.close(); return 0; }, false));
			try (Socket late = new Socket(HOST, port)) {
				late.getOutputStream().write(1);
				late.getInputStream().read();
				late.setSoTimeout(30);
				late.getInputStream().read();
			} catch (SocketTimeoutException e) {
				seen.add(e.getMessage());
			}
		}
		return String.join(" ", seen);
	}

	static String http(int port) throws Exception {
		HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1)
			.executor(POOL).build();
		List<CompletableFuture<HttpResponse<byte[]>>> all = new ArrayList<>();
		for (int round = 0; round < 3; round++) {
			for (int size : new int[] { 0, 1, 1000, 65536, 1_000_003 }) {
				URI uri = URI.create("http://127.0.0.1:" + (port + 1) + "/" + size);
				HttpRequest.Builder b = HttpRequest.newBuilder(uri);
				if (round == 1)
					b.POST(HttpRequest.BodyPublishers.ofByteArray(pattern(size, 3)));
				all.add(client.sendAsync(b.build(),
							 HttpResponse.BodyHandlers.ofByteArray()));
			}
		}
		StringBuilder text = new StringBuilder();
		for (var answer : all)
			text.append(answer.get().body().length).append(' ')
				.append(sha(answer.get().body())).append('\n');
		return text.toString();
	}

	static final ExecutorService POOL = Executors.newCachedThreadPool(r -> {
		Thread t = new Thread(r);
		t.setDaemon(true);
		return t;
	});

	public static void main(String[] args) throws Exception {
		int port = Integer.parseInt(args[1]);
		if (args[0].equals("serve"))
			serve(port);
		List<Future<String>> all = new ArrayList<>();
		for (int i = 0; i < 12; i++) {
			int seed = i;
			all.add(POOL.submit(() -> blocking(port, seed)));
		}
		for (Future<String> f : all)
			System.out.println(f.get());
		System.out.println(files(port));
		System.out.println(asynchronous(port));
		System.out.println(cut(port));
		System.out.print(http(port));
	}
}

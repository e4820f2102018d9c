/* SPDX-License-Identifier: Apache-2.0 */
/* Java RMI: `serve PORT`, which says "ready", or `call PORT`, which says what each call has brought. */
import java.io.Serializable;
import java.rmi.*;
import java.rmi.registry.*;
import java.rmi.server.UnicastRemoteObject;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;

public class Rmi {
	static class Refused extends Exception {
		final int code;

		Refused(int code) {
			super("as asked: " + code);
			this.code = code;
		}
	}

	record Node(int number, String name, List<Node> below) implements Serializable {}

	/* A client's object, which the service calls. */
	interface Told extends Remote {
		int told(int number, byte[] data) throws RemoteException;
	}

	interface Calls extends Remote {
		int next(int n) throws RemoteException;
		byte[] echo(byte[] data) throws RemoteException;
		Node mirror(Node node) throws RemoteException;
		void refuse(int code) throws RemoteException, Refused;
		int tell(Told told, int times) throws RemoteException;
		Calls other(int add) throws RemoteException;
	}

	static class Server implements Calls {
		final int port, add;
		static final List<Calls> kept = new ArrayList<>(); // or they are collected

		Server(int port, int add) {
			this.port = port;
			this.add = add;
		}

		Calls exported() throws RemoteException {
			synchronized (kept) {
				kept.add(this);
			}
			return (Calls)UnicastRemoteObject.exportObject(this, port);
		}

		public int next(int n) {
			return n + add;
		}

		public byte[] echo(byte[] data) {
			return data;
		}

		public Node mirror(Node node) {
			List<Node> below = new ArrayList<>();
			for (Node n : node.below())
				below.add(0, mirror(n));
			return new Node(-node.number(), node.name() + "'", below);
		}

		public void refuse(int code) throws Refused {
			if (code < 0)
				throw new IllegalArgumentException("negative");
			throw new Refused(code);
		}

		public int tell(Told told, int times) throws RemoteException {
			int sum = 0;
			for (int i = 0; i < times; i++)
				sum += told.told(i, new byte[i * 100]);
			return sum;
		}

		public Calls other(int add) throws RemoteException {
			return new Server(port, add).exported();
		}
	}

	static class Client implements Told {
		public int told(int number, byte[] data) {
			return number + data.length;
		}
	}

	static Node tree(int depth, int number) {
		List<Node> below = new ArrayList<>();
		for (int i = 0; i < 3 && depth > 0; i++)
			below.add(tree(depth - 1, number * 3 + i));
		return new Node(number, "node " + number, below);
	}

	static void sizes(Calls calls) throws Exception {
		for (int size : new int[] {0, 1, 4095, 65536, 1000003, 5000000}) {
			byte[] data = new byte[size];
			for (int i = 0; i < size; i++)
				data[i] = (byte)(i * 31 + (i >> 8));
			System.out.println(size + " " + Arrays.equals(calls.echo(data), data));
		}
		byte[] tree = calls.mirror(tree(6, 1)).toString().getBytes();
		byte[] sum = MessageDigest.getInstance("SHA-256").digest(tree);
		System.out.println("tree " + HexFormat.of().formatHex(sum, 0, 8));
	}

	static void errors(Calls calls, Registry registry) throws Exception {
		try {
			calls.refuse(7);
		} catch (Refused e) {
			System.out.println(e.getMessage() + " " + e.code);
		}
		try {
			calls.refuse(-1);
		} catch (IllegalArgumentException e) {
			System.out.println(e.getMessage());
		}
		try {
			registry.lookup("nobody");
		} catch (NotBoundException e) {
			System.out.println("not bound: " + e.getMessage());
		}
	}

	static void threads(Calls calls) throws Exception {
		ExecutorService pool = Executors.newFixedThreadPool(6);
		List<Future<Integer>> sums = new ArrayList<>();
		for (int t = 0; t < 6; t++) {
			int seed = t;
			sums.add(pool.submit(() -> {
				int sum = 0;
				for (int i = 0; i < 100; i++)
					sum += calls.next(i) + calls.echo(new byte[i * i * seed]).length;
				return sum;
			}));
		}
		for (Future<Integer> sum : sums)
			System.out.println("thread " + sum.get());
		pool.shutdown();
	}

	static void call(int port) throws Exception {
		Registry registry = LocateRegistry.getRegistry("127.0.0.1", port);
		System.out.println(String.join(" ", registry.list()));
		Calls calls = (Calls)registry.lookup("calls");
		int sum = 0;
		for (int i = 0; i < 500; i++)
			sum += calls.next(i);
		System.out.println("sum " + sum);
		sizes(calls);
		errors(calls, registry);
		Client client = new Client();
		Told told = (Told)UnicastRemoteObject.exportObject(client, 0);
		System.out.println("told " + calls.tell(told, 200));
		System.out.println("unexported " + UnicastRemoteObject.unexportObject(client, true));
		System.out.println("other " + calls.other(100).next(1) + " " + calls.next(1));
		threads(calls);
	}

	public static void main(String[] args) throws Exception {
		int port = Integer.parseInt(args[1]);
		if (args[0].equals("serve")) {
			Registry registry = LocateRegistry.createRegistry(port);
			registry.bind("calls", new Server(port, 1).exported());
			System.out.println("ready");
			Thread.sleep(Long.MAX_VALUE);
		}
		call(port);
		System.exit(0);
	}
}

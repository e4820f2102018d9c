/* SPDX-License-Identifier: Apache-2.0 */
/* A hello-world loop over Java RMI: `serve PORT`, or `call PORT SECONDS`, which prints the
 * calls of a second. */
import java.rmi.Remote;
import java.rmi.RemoteException;
import java.rmi.registry.LocateRegistry;
import java.rmi.registry.Registry;
import java.rmi.server.UnicastRemoteObject;

public class Hello {
	public interface Greeter extends Remote {
		String greet(String name) throws RemoteException;
	}

	static class Server implements Greeter {
		public String greet(String name) {
			return "Hello, " + name;
		}
	}

	static Server server; // held, so that it is not collected

	static void serve(int port) throws Exception {
		Registry registry = LocateRegistry.createRegistry(port);
		server = new Server();
		registry.bind("greeter", UnicastRemoteObject.exportObject(server, port));
		Thread.sleep(Long.MAX_VALUE);
	}

	/* Calls until the time is over; returns the calls of a second. */
	static double loop(Greeter greeter, double seconds) throws Exception {
		long start = System.nanoTime(), now, calls = 0;
		do {
			for (int i = 0; i < 50; i++, calls++)
				if (!greeter.greet("world").equals("Hello, world"))
					throw new IllegalStateException("wrong answer");
			now = System.nanoTime();
		} while (now - start < seconds * 1e9);
		return calls * 1e9 / (now - start);
	}

	public static void main(String[] args) throws Exception {
		int port = Integer.parseInt(args[1]);
		if (args[0].equals("serve"))
			serve(port);
		Registry registry = LocateRegistry.getRegistry("127.0.0.1", port);
		Greeter greeter = (Greeter)registry.lookup("greeter");
		double seconds = Double.parseDouble(args[2]);
		loop(greeter, seconds / 2 + 0.5); // until it is compiled
		System.out.println("calls/s: " + loop(greeter, seconds));
		System.exit(0);
	}
}

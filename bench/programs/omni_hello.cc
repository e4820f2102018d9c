/* SPDX-License-Identifier: Apache-2.0 */
/* A hello-world loop over omniORB: `serve`, or `call URI SECONDS`, which prints the calls of a second; ORB's
 * options stand behind. */
#include <chrono>
#include <cstring>
#include <iostream>
#include <string>

#include "hello.hh"

class Service : public POA_Greeting::Greeter {
	char *greet(const char *name) override
	{
		return CORBA::string_dup(("Hello, " + std::string(name)).c_str());
	}
};

static int serve(CORBA::ORB_ptr orb)
{
	CORBA::Object_var object = orb->resolve_initial_references("omniINSPOA");
	PortableServer::POA_var poa = PortableServer::POA::_narrow(object);
	PortableServer::ObjectId_var id = PortableServer::string_to_ObjectId("greeter");
	PortableServer::POAManager_var manager = poa->the_POAManager();

	poa->activate_object_with_id(id, new Service);
	manager->activate();
	orb->run();
	return 0;
}

/* Calls until the time is over; returns the calls of a second. */
static double loop(Greeting::Greeter_ptr greeter, double seconds)
{
	auto start = std::chrono::steady_clock::now();
	std::chrono::duration<double> passed{};
	double calls = 0;

	do {
		for (int i = 0; i < 50; i++, calls++) {
			CORBA::String_var answer = greeter->greet("world");

			if (std::strcmp(answer, "Hello, world") != 0)
				throw CORBA::UNKNOWN();
		}
		passed = std::chrono::steady_clock::now() - start;
	} while (passed.count() < seconds);
	return calls / passed.count();
}

int main(int argc, char **argv)
{
	try {
		CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);

		if (argc == 2 && !std::strcmp(argv[1], "serve"))
			return serve(orb);
		if (argc == 4 && !std::strcmp(argv[1], "call")) {
			CORBA::Object_var object = orb->string_to_object(argv[2]);
			Greeting::Greeter_var greeter = Greeting::Greeter::_narrow(object);

			std::cout << "calls/s: " << std::fixed << loop(greeter, std::stod(argv[3])) << "\n";
			return 0;
		}
	} catch (const CORBA::Exception &e) {
		std::cout << "exception " << e._name() << "\n";
		return 1;
	}
	return 2;
}

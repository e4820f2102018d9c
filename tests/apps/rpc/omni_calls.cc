/* SPDX-License-Identifier: Apache-2.0 */
/* omniORB: `serve`, or `call URI` of a service, which says what each call has brought; ORB's options
 * stand behind. */
#include <csignal>
#include <cstring>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "calls.hh"

static CORBA::ORB_var orb;

class Service : public POA_Test::Calls {
	std::string prefix;

    public:
	explicit Service(const char *text) : prefix(text)
	{
	}

	char *echo(const char *text) override
	{
		return CORBA::string_dup((prefix + text).c_str());
	}

	Test::Bytes *echo_bytes(const Test::Bytes &data) override
	{
		return new Test::Bytes(data);
	}

	void refuse(CORBA::Long code) override
	{
		if (code < 0)
			throw CORBA::NO_PERMISSION();
		throw Test::Refused(code, "as asked");
	}

	CORBA::Long tell(Test::Listener_ptr who, CORBA::Long times) override
	{
		CORBA::Long sum = 0;

		for (CORBA::Long i = 0; i < times; i++) {
			Test::Bytes data;

			data.length(CORBA::ULong(i) * 100);
			std::memset(data.get_buffer(), 1, data.length());
			sum += who->told(i, data);
		}
		return sum;
	}

	CORBA::Long note(Test::Listener_ptr who, CORBA::Long times) override
	{
		for (CORBA::Long i = 0; i < times; i++)
			who->noted(i);
		return who->told(0, Test::Bytes());
	}

	Test::Calls_ptr other(const char *text) override
	{
		auto *servant = new Service(text);
		Test::Calls_ptr reference = servant->_this();

		servant->_remove_ref();
		return reference;
	}

	void shut_down() override
	{
		orb->shutdown(false);
	}
};

/* A client's object, which the service calls. */
class Client : public POA_Test::Listener {
    public:
	CORBA::Long told(CORBA::Long number, const Test::Bytes &data) override
	{
		return number + CORBA::Long(data.length());
	}

	void noted(CORBA::Long) override
	{
	}
};

static int serve()
{
	/* The object's key is the one that a corbaloc names. */
	CORBA::Object_var object = orb->resolve_initial_references("omniINSPOA");
	PortableServer::POA_var poa = PortableServer::POA::_narrow(object);
	PortableServer::ObjectId_var id = PortableServer::string_to_ObjectId("calls");
	auto *servant = new Service("");

	poa->activate_object_with_id(id, servant);
	object = orb->resolve_initial_references("RootPOA");
	PortableServer::POA_var root = PortableServer::POA::_narrow(object);
	root->the_POAManager()->activate();
	poa->the_POAManager()->activate();
	std::cout << "ready" << std::endl;
	orb->run();
	orb->destroy();
	return 0;
}

static void sizes(Test::Calls_ptr calls)
{
	for (CORBA::ULong size : {0u, 1u, 8191u, 65536u, 1000003u, 5000000u}) {
		Test::Bytes data;

		data.length(size);
		for (CORBA::ULong i = 0; i < size; i++)
			data[i] = CORBA::Octet(i * 31 + (i >> 8));
		Test::Bytes_var back = calls->echo_bytes(data);
		std::cout << size << " "
			  << (back->length() == size &&
			      !std::memcmp(back->get_buffer(), data.get_buffer(), size))
			  << "\n";
	}
}

static void errors(Test::Calls_ptr calls)
{
	try {
		calls->refuse(7);
	} catch (const Test::Refused &e) {
		std::cout << "refused " << e.code << " " << e.why << "\n";
	}
	try {
		calls->refuse(-1);
	} catch (const CORBA::SystemException &e) {
		std::cout << e._name() << "\n";
	}
}

static void threads(Test::Calls_ptr calls)
{
	std::vector<std::thread> all;
	std::vector<int> wrong(6);

	for (unsigned t = 0; t < 6; t++)
		all.emplace_back([&, t] {
			for (unsigned i = 0; i < 100; i++) {
				std::string text(i * t * 10, 'x');
				CORBA::String_var back = calls->echo(text.c_str());

				wrong[t] += text != back.in();
			}
		});
	for (auto &one : all)
		one.join();
	for (int n : wrong)
		std::cout << "thread wrong " << n << "\n";
}

static int call(const char *uri)
{
	CORBA::Object_var object = orb->resolve_initial_references("RootPOA");
	PortableServer::POA_var root = PortableServer::POA::_narrow(object);
	int wrong = 0;

	root->the_POAManager()->activate();
	object = orb->string_to_object(uri);
	Test::Calls_var calls = Test::Calls::_narrow(object);
	for (int i = 0; i < 500; i++) {
		CORBA::String_var back = calls->echo(std::to_string(i).c_str());

		wrong += std::to_string(i) != back.in();
	}
	std::cout << "wrong " << wrong << "\n";
	sizes(calls);
	errors(calls);
	auto *client = new Client;
	Test::Listener_var told = client->_this();
	std::cout << "told " << calls->tell(told, 200) << "\n";
	std::cout << "noted " << calls->note(told, 200) << "\n";
	Test::Calls_var other = calls->other("other ");
	CORBA::String_var text = other->echo("text");
	std::cout << text.in() << "\n";
	threads(calls);
	calls->shut_down();
	orb->destroy();
	return 0;
}

int main(int argc, char **argv)
{
	try {
		orb = CORBA::ORB_init(argc, argv);
		if (argc == 2 && !std::strcmp(argv[1], "serve"))
			return serve();
		if (argc == 3 && !std::strcmp(argv[1], "call"))
			return call(argv[2]);
	} catch (const CORBA::Exception &e) {
		std::cout << "exception " << e._name() << "\n";
	}
	return 2;
}

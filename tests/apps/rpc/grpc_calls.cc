/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC in C++: `serve PORT`, or `call PORT`, which says what each call has brought. */
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <csignal>
#include <iostream>
#include <thread>
#include <vector>

#include "calls.grpc.pb.h"

using grpc::ServerContext;
using grpc::Status;

class Service final : public Calls::Service {
	Status Echo(ServerContext *, const Item *in, Item *out) override
	{
		*out = *in;
		return Status::OK;
	}

	/* Or until the client has given it up. */
	Status Refuse(ServerContext *context, const Item *in, Item *) override
	{
		while (in->number() < 0 && !context->IsCancelled())
			std::this_thread::sleep_for(std::chrono::milliseconds(1));
		return Status(grpc::StatusCode(in->number()), "as asked");
	}

	Status Count(ServerContext *, const Item *in, grpc::ServerWriter<Item> *writer) override
	{
		Item item;
		for (int i = 0; i < in->number(); i++) {
			item.set_number(i);
			item.set_data(std::string(size_t(i) * 10, char(i)));
			writer->Write(item);
		}
		return Status::OK;
	}

	Status Sum(ServerContext *, grpc::ServerReader<Item> *reader, Total *total) override
	{
		Item item;
		int64_t count = 0, bytes = 0;
		while (reader->Read(&item)) {
			count++;
			bytes += int64_t(item.data().size());
		}
		total->set_count(count);
		total->set_bytes(bytes);
		return Status::OK;
	}

	Status Talk(ServerContext *, grpc::ServerReaderWriter<Item, Item> *stream) override
	{
		Item item;
		while (stream->Read(&item)) {
			item.set_number(item.number() * 2);
			stream->Write(item);
		}
		return Status::OK;
	}
};

static int serve(const std::string &target)
{
	static Service service;
	grpc::ServerBuilder builder;
	sigset_t set;
	int number;

	/* Before any thread is there: SIGTERM is taken below. */
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &set, nullptr);
	builder.AddListeningPort(target, grpc::InsecureServerCredentials());
	builder.SetMaxReceiveMessageSize(-1);
	builder.RegisterService(&service);
	auto server = builder.BuildAndStart();
	if (!server)
		return 1;
	sigwait(&set, &number);
	server->Shutdown(std::chrono::system_clock::now());
	return 0;
}

static bool echoes(Calls::Stub &stub, int number, size_t size)
{
	grpc::ClientContext context;
	Item in, out;
	std::string data(size, 0);

	for (size_t i = 0; i < size; i++)
		data[i] = char(i * 31 + (i >> 8));
	in.set_number(number);
	in.set_data(data);
	return stub.Echo(&context, in, &out).ok() && out.number() == number && out.data() == data;
}

static int refused(Calls::Stub &stub, int code, int limit_ms)
{
	grpc::ClientContext context;
	Item in, out;

	if (limit_ms)
		context.set_deadline(std::chrono::system_clock::now() +
				     std::chrono::milliseconds(limit_ms));
	in.set_number(code);
	return stub.Refuse(&context, in, &out).error_code();
}

static void streams(Calls::Stub &stub)
{
	Item in, out;
	Total total;
	int64_t count = 0, bytes = 0;
	grpc::ClientContext counting, summing, talking;

	in.set_number(400);
	auto reader = stub.Count(&counting, in);
	while (reader->Read(&out)) {
		bytes += out.number() == count++ ? int64_t(out.data().size()) : 0;
	}
	std::cout << "count " << reader->Finish().ok() << " " << count << " " << bytes << "\n";
	auto writer = stub.Sum(&summing, &total);
	for (int i = 0; i < 400; i++) {
		in.set_data(std::string(size_t(i) * 20, 'x'));
		writer->Write(in);
	}
	writer->WritesDone();
	std::cout << "sum " << writer->Finish().ok() << " " << total.count() << " "
		  << total.bytes() << "\n";
	auto talk = stub.Talk(&talking);
	int wrong = 0;
	for (int i = 0; i < 300; i++) {
		in.set_number(i);
		in.set_data(std::string(size_t(i) * 30, 'y'));
		wrong += !talk->Write(in) || !talk->Read(&out) || out.number() != i * 2 ||
			 out.data() != in.data();
	}
	talk->WritesDone();
	std::cout << "talk " << talk->Finish().ok() << " wrong " << wrong << "\n";
}

static void threads(Calls::Stub &stub)
{
	std::vector<std::thread> all;
	std::vector<int> wrong(6);

	for (int t = 0; t < 6; t++)
		all.emplace_back([&, t] {
			for (int i = 0; i < 50; i++)
				wrong[size_t(t)] += !echoes(stub, i, size_t(i * t) * 100);
		});
	for (auto &one : all)
		one.join();
	for (int n : wrong)
		std::cout << "thread wrong " << n << "\n";
}

static int call(const std::string &target)
{
	grpc::ChannelArguments arguments;
	int wrong = 0;

	arguments.SetMaxReceiveMessageSize(-1);
	arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
	auto stub = Calls::NewStub(
		grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments));
	for (int i = 0; i < 300; i++)
		wrong += !echoes(*stub, i, 10);
	std::cout << "wrong " << wrong << "\n";
	for (size_t size : {0, 1, 16384, 65536, 1000003, 8000000})
		std::cout << size << " " << echoes(*stub, 1, size) << "\n";
	for (int code : {1, 5, 12, 16})
		std::cout << "refused " << refused(*stub, code, 0) << "\n";
	std::cout << "deadline " << refused(*stub, -1, 50) << "\n";
	streams(*stub);
	threads(*stub);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	std::string target = std::string("127.0.0.1:") + argv[2];
	return std::string(argv[1]) == "serve" ? serve(target) : call(target);
}

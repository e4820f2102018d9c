// SPDX-License-Identifier: Apache-2.0
// Calls of Cap'n Proto: serve PORT, or call PORT, which prints what came back, and ends the service.
#include <capnp/ez-rpc.h>
#include <capnp/message.h>
#include <kj/async.h>
#include <kj/vector.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "calls.capnp.h"

namespace
{

uint32_t sum_of(capnp::Data::Reader data)
{
	uint32_t sum = 7;

	for (auto byte : data)
		sum = sum * 31 + byte;
	return sum;
}

kj::Array<kj::byte> bytes_of(size_t len)
{
	auto bytes = kj::heapArray<kj::byte>(len);

	for (size_t i = 0; i < len; i++)
		bytes[i] = static_cast<kj::byte>(i * 7 + len + (i >> 9));
	return bytes;
}

class Service final : public Calls::Server
{
      public:
	Service(std::string before, int *given, kj::Own<kj::PromiseFulfiller<void>> *end)
	    : prefix(before), count(given), over(end)
	{
	}

	kj::Promise<void> echo(EchoContext context) override
	{
		std::string text = prefix + context.getParams().getText().cStr();

		context.getResults().setText(text.c_str());
		return kj::READY_NOW;
	}

	kj::Promise<void> echoData(EchoDataContext context) override
	{
		context.getResults().setData(context.getParams().getData());
		return kj::READY_NOW;
	}

	kj::Promise<void> refuse(RefuseContext context) override
	{
		return KJ_EXCEPTION(FAILED, context.getParams().getWhy());
	}

	// Calls the client's object again once it has answered.
	static kj::Promise<uint32_t> tell_on(Listener::Client who, int left, uint32_t sum)
	{
		if (left == 0)
			return sum;
		auto request = who.toldRequest();

		request.setNumber(left);
		request.setData(bytes_of(static_cast<size_t>(left) * 1000));
		return request.send().then([who, left, sum](auto answer) mutable {
			return tell_on(who, left - 1, sum * 3 + answer.getSum());
		});
	}

	kj::Promise<void> tell(TellContext context) override
	{
		auto params = context.getParams();

		return tell_on(params.getWho(), params.getTimes(), 0)
			.then([context](uint32_t sum) mutable {
				context.getResults().setSum(sum);
			});
	}

	kj::Promise<void> other(OtherContext context) override
	{
		std::string before = prefix + context.getParams().getPrefix().cStr();

		context.getResults().setCalls(kj::heap<Service>(before, count, over));
		return kj::READY_NOW;
	}

	// Until the client gives it up.
	kj::Promise<void> never(NeverContext context) override
	{
		context.allowCancellation();
		return kj::Promise<void>(kj::NEVER_DONE).attach(kj::defer([this]() {
			++*count;
		}));
	}

	kj::Promise<void> given(GivenContext context) override
	{
		context.getResults().setCount(*count);
		return kj::READY_NOW;
	}

	kj::Promise<void> quit(QuitContext) override
	{
		(*over)->fulfill();
		return kj::READY_NOW;
	}

      private:
	std::string prefix;
	int *count;
	kj::Own<kj::PromiseFulfiller<void>> *over;
};

class Listening final : public Listener::Server
{
      public:
	explicit Listening(uint32_t *what) : seen(what)
	{
	}

	kj::Promise<void> told(ToldContext context) override
	{
		auto params = context.getParams();
		uint32_t sum = sum_of(params.getData()) +
			       static_cast<uint32_t>(params.getNumber());

		*seen = *seen * 5 + sum;
		context.getResults().setSum(sum);
		return kj::READY_NOW;
	}

      private:
	uint32_t *seen;
};

int serve(const char *port)
{
	int count = 0;
	kj::Own<kj::PromiseFulfiller<void>> end;
	capnp::EzRpcServer server(kj::heap<Service>("", &count, &end),
				  kj::str("127.0.0.1:", port));
	auto pair = kj::newPromiseAndFulfiller<void>();

	end = kj::mv(pair.fulfiller);
	pair.promise.wait(server.getWaitScope());
	return 0;
}

void sizes(Calls::Client calls, kj::WaitScope &scope)
{
	for (size_t len = 0; len < 13000000; len = len * 5 + 1) {
		auto request = calls.echoDataRequest();
		auto bytes = bytes_of(len);

		request.setData(bytes);
		auto answer = request.send().wait(scope);
		auto data = answer.getData();
		std::printf("%zu bytes: %s\n", len,
			    data.size() == len &&
					    !std::memcmp(data.begin(), bytes.begin(), len)
				    ? "equal"
				    : "different");
	}
}

// All of them at once.
void many(Calls::Client calls, kj::WaitScope &scope)
{
	kj::Vector<kj::Promise<void>> all;
	uint32_t sum = 0;

	for (int i = 0; i < 300; i++) {
		auto request = calls.echoDataRequest();

		request.setData(bytes_of(static_cast<size_t>(i) * 50));
		all.add(request.send().then([&sum, i](auto answer) {
			sum += sum_of(answer.getData()) * static_cast<uint32_t>(i + 1);
		}));
	}
	kj::joinPromises(all.releaseAsArray()).wait(scope);
	std::printf("many: %u\n", sum);
}

// A call on what another call has yet to bring.
void pipelined(Calls::Client calls, kj::WaitScope &scope)
{
	auto first = calls.otherRequest();

	first.setPrefix("a ");
	auto second = first.send().getCalls().otherRequest();
	second.setPrefix("b ");
	auto third = second.send().getCalls().echoRequest();
	third.setText("c");
	std::printf("pipelined: %s\n", third.send().wait(scope).getText().cStr());
}

void refused(Calls::Client calls, kj::WaitScope &scope)
{
	auto request = calls.refuseRequest();

	request.setWhy("as it was asked for");
	KJ_IF_MAYBE (e,
		     kj::runCatchingExceptions([&]() { request.send().wait(scope); })) {
		std::printf("refused: %s\n", e->getDescription().cStr());
	}
}

void given_up(Calls::Client calls, kj::WaitScope &scope)
{
	for (int i = 0; i < 5; i++) {
		auto promise = calls.neverRequest().send();

		calls.echoRequest().send().wait(scope);
	}
	std::printf("given up: %d\n", calls.givenRequest().send().wait(scope).getCount());
}

int call(const char *port)
{
	capnp::EzRpcClient client(kj::str("127.0.0.1:", port));
	auto calls = client.getMain<Calls>();
	auto &scope = client.getWaitScope();
	uint32_t seen = 0, sum = 0;

	for (int i = 0; i < 300; i++) {
		auto request = calls.echoRequest();

		request.setText(kj::str("number ", i));
		sum = sum * 31 + request.send().wait(scope).getText().size();
	}
	std::printf("one by one: %u\n", sum);
	sizes(calls, scope);
	many(calls, scope);
	pipelined(calls, scope);
	refused(calls, scope);
	given_up(calls, scope);
	auto tell = calls.tellRequest();
	tell.setWho(kj::heap<Listening>(&seen));
	tell.setTimes(60);
	sum = tell.send().wait(scope).getSum();
	std::printf("told: %u, %u\n", sum, seen);
	// Whether the answer comes before the end is a matter of chance.
	KJ_IF_MAYBE (e, kj::runCatchingExceptions(
				[&]() { calls.quitRequest().send().wait(scope); })) {
		(void)e;
	}
	return 0;
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	return std::strcmp(argv[1], "serve") == 0 ? serve(argv[2]) : call(argv[2]);
}

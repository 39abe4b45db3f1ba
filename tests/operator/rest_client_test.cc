#include "operator/kube/rest_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/build_info.h"
#include "operator/kube/json_items.h"
#include "tests/operator/scripted_client.h"
#include "tests/operator/tls_peer.h"

namespace trainyard::kube {
namespace {

class RestClientTest : public testing::Test {
 protected:
  RestClientTest() : folder_(std::filesystem::path(testing::TempDir()) / ("rest-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~RestClientTest() override { std::filesystem::remove_all(folder_); }

  Endpoint To(int port, const std::string& host = "127.0.0.1") const { return EndpointOf(port, authority_, host); }
  std::string File(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path) << text;
    return path;
  }
  Status Get(const Endpoint& endpoint) {
    RestClient client(endpoint, clock_, stop_, {.request_seconds = 20});
    return client.Get(kPods, "default", "a").status();
  }
  // Answers everything.
  static void Good(TlsStream& stream) {
    while (!stream.ReadRequest().empty() && stream.Answer("{}")) {
    }
  }

  const std::filesystem::path folder_;
  SystemClock clock_;
  TurnedClock turned_;
  StopFlag stop_;
  TestCertificate authority_ = TestCertificate::Authority("authority");
  TestCertificate server_{"server", &authority_, nullptr, "DNS:api.example,IP:127.0.0.1,IP:::1"};
};

TEST_F(RestClientTest, SpeaksWithAnIPv6Host) {
  std::string request;
  const TlsPeer peer(
      server_,
      [&](TlsStream& stream) {
        request = stream.ReadRequest();
        stream.Answer("{}");
      },
      "::1");
  const Status status = Get(To(peer.port(), "::1"));
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_NE(request.find("\r\nHost: [::1]:" + std::to_string(peer.port())), std::string::npos) << request;
}

// RFC 9110, 10.1.5: a product with its version, and a comment.
TEST_F(RestClientTest, SaysWhoItIs) {
  std::string request;
  const TlsPeer peer(server_, [&](TlsStream& stream) {
    request = stream.ReadRequest();
    stream.Answer("{}");
  });
  EXPECT_TRUE(Get(To(peer.port())).ok());
  const std::string field =
      std::string("\r\nUser-Agent: trainyard-operator/") + Build().version + " (" + Build().commit + ")\r\n";
  EXPECT_NE(request.find(field), std::string::npos) << request;
}

TEST_F(RestClientTest, OnlyTheAuthorityAndTheNameThatAreGivenCount) {
  const TlsPeer peer(server_, Good);
  EXPECT_TRUE(Get(To(peer.port())).ok());
  Endpoint named = To(peer.port());
  named.server_name = "api.example";
  EXPECT_TRUE(Get(named).ok());
  named.server_name = "other.example";
  EXPECT_NE(Get(named).message().find("hostname mismatch"), std::string::npos) << Get(named).ToString();
  const TestCertificate unnamed("api.example", &authority_);
  const TlsPeer by_subject(unnamed, Good);
  named.port = by_subject.port();
  named.server_name = "api.example";
  EXPECT_NE(Get(named).message().find("hostname mismatch"), std::string::npos) << "its subject is no name";
  Endpoint fooled = To(peer.port());
  fooled.ca_pem = TestCertificate::Authority("authority").pem();
  EXPECT_NE(Get(fooled).message().find("TLS: the certificate"), std::string::npos) << Get(fooled).ToString();
}

// A service account's ca.crt of RKE2, or of kubeadm with an intermediate authority, has no root, and Go asks for none.
TEST_F(RestClientTest, AnAuthorityThatAnotherOneSignedIsTrusted) {
  const TestCertificate root = TestCertificate::Authority("root"),
                        cluster = TestCertificate::Authority("cluster", &root);
  const TestCertificate server("server", &cluster, nullptr, "IP:127.0.0.1");
  const TlsPeer peer(server, Good);
  Endpoint endpoint = To(peer.port());
  endpoint.ca_pem = cluster.pem();
  EXPECT_TRUE(Get(endpoint).ok()) << Get(endpoint).ToString();
  EXPECT_FALSE(Get(To(peer.port())).ok()) << "another one's";
}

TEST_F(RestClientTest, AsksForTheNameOfTlsServerName) {
  std::string name;
  const TlsPeer peer(server_, [&](TlsStream& stream) {
    name = stream.server_name();
    Good(stream);
  });
  Endpoint endpoint = To(peer.port());
  endpoint.server_name = "api.example";
  EXPECT_TRUE(Get(endpoint).ok());
  EXPECT_EQ(name, "api.example");
}

// The server knows the root alone.
TEST_F(RestClientTest, ShowsTheWholeChain) {
  const TestCertificate between = TestCertificate::Authority("between", &authority_);
  const TestCertificate client("client", &between);
  std::atomic<int> shown{0};
  const TlsPeer peer(
      server_,
      [&](TlsStream& stream) {
        shown = stream.shown();
        Good(stream);
      },
      "127.0.0.1", &authority_);
  Endpoint endpoint = To(peer.port());
  endpoint.certificate_pem = client.pem() + between.pem();
  endpoint.key_pem = client.key_pem();
  const Status status = Get(endpoint);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_GE(shown, 2);
  endpoint.certificate_pem = client.pem();
  EXPECT_FALSE(Get(endpoint).ok()) << "without the one between, nobody can check it";
}

TEST_F(RestClientTest, ImpersonatesWhomTheKubeconfigSays) {
  std::string request;
  const TlsPeer peer(server_, [&](TlsStream& stream) {
    request = stream.ReadRequest();
    stream.Answer("{}");
  });
  Endpoint endpoint = To(peer.port());
  endpoint.as = {.user = "alice", .uid = "7", .groups = {"one", "two"}};
  EXPECT_TRUE(Get(endpoint).ok());
  for (const char* field :
       {"Impersonate-User: alice", "Impersonate-Uid: 7", "Impersonate-Group: one", "Impersonate-Group: two"})
    EXPECT_NE(request.find(std::string("\r\n") + field + "\r\n"), std::string::npos) << field;
  endpoint.as.user = "alice\r\nX-Evil: 1";
  EXPECT_TRUE(Get(endpoint).Is(Code::kInvalid));
}

TEST_F(RestClientTest, ATokenIsReadAgainAfterAMinuteAndAfterARefusal) {
  std::vector<std::string> seen;
  const TlsPeer peer(server_, [&](TlsStream& stream) {
    for (std::string request; !(request = stream.ReadRequest()).empty();) {
      const size_t begin = request.find("Bearer ") + 7;
      seen.push_back(request.substr(begin, request.find('\r', begin) - begin));
      seen.back() == "expired" ? stream.Answer("{}", "401 Unauthorized") : stream.Answer("{}");
    }
  });
  Endpoint endpoint = To(peer.port());
  endpoint.token_file = File("token", "first\n");
  RestClient client(endpoint, turned_, stop_);
  const auto get = [&] { return client.Get(kPods, "default", "a").status(); };
  EXPECT_TRUE(get().ok());
  File("token", "second\n");
  EXPECT_TRUE(get().ok());
  turned_.Pass(61);
  EXPECT_TRUE(get().ok());
  std::filesystem::remove(endpoint.token_file);
  turned_.Pass(61);
  EXPECT_TRUE(get().ok()) << "the old one may still do";
  File("token", "expired");
  turned_.Pass(61);
  EXPECT_TRUE(get().Is(Code::kUnauthorized));
  File("token", "third");
  EXPECT_TRUE(get().ok()) << "read again after the refusal, without a minute";
  EXPECT_EQ(seen,
            (std::vector<std::string>{"first", "first", "second", "second", "expired", "expired", "expired", "third"}));
}

TEST_F(RestClientTest, AuthoritiesAreRotatedWithoutARestart) {
  const TestCertificate next = TestCertificate::Authority("next");
  const TestCertificate renewed("server", &next, nullptr, "IP:127.0.0.1");
  const TlsPeer before(server_, Good), after(renewed, Good);
  Endpoint endpoint = To(after.port());
  endpoint.ca_file = File("ca", authority_.pem());
  RestClient client(endpoint, turned_, stop_);
  const auto get = [&] { return client.Get(kPods, "default", "a").status(); };
  EXPECT_FALSE(get().ok());
  File("ca", "half a file, while it is writ");
  turned_.Pass(61);
  EXPECT_FALSE(get().ok());
  File("ca", authority_.pem() + next.pem());
  turned_.Pass(61);
  const Status status = get();
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST_F(RestClientTest, WhatCannotBeUsedLeavesTheOldInPlace) {
  const TestCertificate mine("client", &authority_), other("other", &authority_);
  const TlsPeer peer(server_, Good, "127.0.0.1", &authority_);
  Endpoint endpoint = To(peer.port());
  endpoint.ca_file = File("ca", authority_.pem());
  endpoint.certificate_file = File("certificate", mine.pem());
  endpoint.key_file = File("key", mine.key_pem());
  endpoint.certificate_pem = mine.pem();
  endpoint.key_pem = mine.key_pem();
  RestClient client(endpoint, turned_, stop_);
  const auto get = [&] {
    turned_.Pass(61);
    return client.Get(kPods, "default", "a").status();
  };
  EXPECT_TRUE(get().ok());
  File("ca", "half a file, while it is writ");
  EXPECT_TRUE(get().ok());
  File("ca", authority_.pem());
  File("certificate", other.pem());
  EXPECT_TRUE(get().ok()) << "the new certificate, and the old key yet";
  EXPECT_EQ(peer.connections(), 1) << "with an identity that did not change";
  File("key", other.key_pem());
  EXPECT_TRUE(get().ok());
  EXPECT_EQ(peer.connections(), 2) << "and once more with the new one";
  std::filesystem::remove(folder_ / "ca");
  EXPECT_TRUE(get().ok());
}

TEST_F(RestClientTest, GoesThroughAProxy) {
  const TlsPeer peer(server_, Good);
  std::string request;
  // Connects, and carries bytes both ways.
  const Peer proxy([&](int connection) {
    if (!Peer::ReadRequest(connection, &request)) return;
    const net::Address to = *net::ParseAddress("127.0.0.1", peer.port());
    const int out = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(out, to.get(), to.length), 0);
    Peer::Send(connection, "HTTP/1.1 200 Connection established\r\n\r\n");
    const auto carry = [](int from, int to) {
      char part[4096];
      for (ssize_t got; (got = recv(from, part, sizeof part, 0)) > 0;)
        send(to, part, static_cast<size_t>(got), MSG_NOSIGNAL);
      shutdown(to, SHUT_RDWR);
    };
    std::thread back([&] { carry(out, connection); });
    carry(connection, out);
    back.join();
    close(out);
  });
  Endpoint endpoint = To(peer.port());
  endpoint.server_name = "api.example";
  endpoint.host = "api.invalid";  // only the proxy need know it
  endpoint.proxy = *net::ParseProxy("http://user:p%40ss@127.0.0.1:" + std::to_string(proxy.port()));
  const Status status = Get(endpoint);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_NE(request.find("CONNECT api.invalid:" + std::to_string(peer.port()) + " HTTP/1.1"), std::string::npos)
      << request;
  EXPECT_NE(request.find("Proxy-Authorization: Basic dXNlcjpwQHNz"), std::string::npos) << request;
}

TEST_F(RestClientTest, AProxyThatRefusesIsNamed) {
  const Peer proxy([](int connection) {
    if (Peer::ReadRequest(connection)) Peer::Send(connection, "HTTP/1.1 407 No\r\n\r\n");
  });
  Endpoint endpoint = To(1);
  endpoint.proxy = {.host = "127.0.0.1", .port = proxy.port(), .authorization = ""};
  const Status status = Get(endpoint);
  EXPECT_NE(status.message().find("proxy 127.0.0.1:" + std::to_string(proxy.port())), std::string::npos);
  EXPECT_NE(status.message().find("HTTP 407"), std::string::npos) << status.ToString();
}

TEST_F(RestClientTest, OneConnectionCarriesManyRequests) {
  const TlsPeer peer(server_, Good);
  RestClient client(To(peer.port()), clock_, stop_);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(client.Get(kPods, "default", "a").ok());
  EXPECT_EQ(peer.connections(), 1);
}

// A server that closes after each answer, without having said so.
TEST_F(RestClientTest, AConnectionThatWasClosedMeanwhileIsNoFailure) {
  const TlsPeer peer(server_, [](TlsStream& stream) {
    if (!stream.ReadRequest().empty()) stream.Answer("{}");
  });
  RestClient client(To(peer.port()), clock_, stop_);
  for (int i = 0; i < 20; ++i) {
    const Status status = client.Create(kPods, "default", {{"a", 1}}, {}).status();
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

TEST_F(RestClientTest, ABrokenAnswerRepeatsAReadAndNoWrite) {
  std::atomic<int> requests{0};
  const TlsPeer peer(server_, [&](TlsStream& stream) {
    if (stream.ReadRequest().empty()) return;
    ++requests;
    stream.Send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{");
  });
  EXPECT_TRUE(Get(To(peer.port())).Is(Code::kUnavailable));
  EXPECT_EQ(requests, 2);
  RestClient client(To(peer.port()), clock_, stop_);
  EXPECT_TRUE(client.Create(kPods, "default", {{"a", 1}}, {}).status().Is(Code::kUnavailable));
  EXPECT_EQ(requests, 3) << "the server may have done it";
}

TEST_F(RestClientTest, AnAnswerThatNobodyWantsIsNotRead) {
  std::atomic<bool> refuses{false};
  const TlsPeer peer(server_, [&](TlsStream& stream) {
    while (!stream.ReadRequest().empty()) stream.Answer("no JSON", refuses ? "409 Conflict" : "201 Created");
  });
  RestClient client(To(peer.port()), clock_, stop_);
  EXPECT_TRUE(client.Create(kPods, "default", {{"a", 1}}, {}).status().Is(Code::kInternal));
  EXPECT_TRUE(client.Create(kPods, "default", {{"a", 1}}, {.answer = false}).ok());
  refuses = true;
  EXPECT_FALSE(client.Create(kPods, "default", {{"a", 1}}, {.answer = false}).ok()) << "but whether it was done is";
}

TEST_F(RestClientTest, RetryAfterIsTold) {
  const TlsPeer peer(server_, [](TlsStream& stream) {
    while (!stream.ReadRequest().empty()) stream.Answer("{}", "429 Too Many Requests", "Retry-After: 7\r\n");
  });
  const Status status = Get(To(peer.port()));
  EXPECT_TRUE(status.Is(Code::kThrottled));
  EXPECT_EQ(status.retry_after_seconds(), 7.0);
}

TEST_F(RestClientTest, ARetryAfterThatIsNoNumberOfSecondsIsNone) {
  for (const std::string wrong :
       {"inf", "infinity", "nan", "1e300", "0x7", "-7", "0", "7 seconds", "99999999999999999999"}) {
    const TlsPeer peer(server_, [field = "Retry-After: " + wrong + "\r\n"](TlsStream& stream) {
      while (!stream.ReadRequest().empty()) stream.Answer("{}", "429 Too Many Requests", field);
    });
    EXPECT_EQ(Get(To(peer.port())).retry_after_seconds(), std::nullopt) << wrong;
  }
}

TEST_F(RestClientTest, EachAttemptIsCountedByItsVerbAndItsAnswer) {
  std::atomic<int> codes{0};
  const TlsPeer peer(server_, [&](TlsStream& stream) {
    for (;;) {
      if (stream.ReadRequest().empty()) return;
      constexpr std::array kCodes{"200 OK", "429 Too Many Requests", "418 Teapot"};
      if (!stream.Answer("{}", kCodes[static_cast<size_t>(codes++) % 3])) return;
    }
  });
  RequestMetrics metrics;
  RestClient client(To(peer.port()), clock_, stop_, {.request_seconds = 20, .metrics = &metrics});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.Get(kPods, "default", "a").ok(), i == 0);
  for (int i = 0; i < 3; ++i) (void)client.Delete(kPods, "default", "a", {});
  (void)client.Watch(
      kPods, "", {.timeout_seconds = 1}, [](const WatchEvent&) { return true; }, stop_);
  int unused = 0;
  {
    const Peer nobody([](int) {});
    unused = nobody.port();
  }
  RestClient lost(To(unused), clock_, stop_, {.request_seconds = 20, .metrics = &metrics});
  EXPECT_FALSE(lost.MergePatch(kPods, "default", "a", "", Json::object(), {}).ok());
  std::map<std::string, int64_t> seen;
  metrics.Visit([&](const char* verb, const char* code, const HistogramReading& seconds) {
    seen[std::string(verb) + " " + code] = seconds.count();
    EXPECT_GE(seconds.sum, 0);
  });
  EXPECT_EQ(seen, (std::map<std::string, int64_t>{{"GET 200", 1},
                                                  {"GET 429", 1},
                                                  {"GET other", 1},
                                                  {"DELETE 200", 1},
                                                  {"DELETE 429", 1},
                                                  {"DELETE other", 1},
                                                  {"WATCH 200", 1},
                                                  {"PATCH none", 1}}));
}

TEST_F(RestClientTest, ADripEndsAtTheDeadline) {
  const TlsPeer peer(server_, [](TlsStream& stream) {
    stream.ReadRequest();
    stream.Send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
    while (stream.Send("x")) usleep(50'000);
  });
  RestClient client(To(peer.port()), clock_, stop_, {.request_seconds = 1});
  const Instant start = SteadyNow();
  EXPECT_TRUE(client.Get(kPods, "default", "a").status().Is(Code::kDeadline));
  EXPECT_LT(SecondsBetween(start, SteadyNow()), 30);
}

// While the TLS handshake hangs, while an answer is waited for, in the middle of a stream.
TEST_F(RestClientTest, AStopEndsWhateverIsInFlight) {
  std::atomic<int> there{0};
  const Peer hangs([&](int connection) {
    ++there;
    Peer::Silent(connection);
  });
  const TlsPeer silent(server_, [&](TlsStream& stream) {
    stream.ReadRequest();
    ++there;
    stream.ReadRequest();
  });
  const TlsPeer streams(server_, [&](TlsStream& stream) {
    stream.ReadRequest();
    stream.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    ++there;
    stream.ReadRequest();
  });
  RestClient first(To(hangs.port()), clock_, stop_), second(To(silent.port()), clock_, stop_),
      third(To(streams.port()), clock_, stop_);
  std::vector<std::thread> threads;
  threads.emplace_back([&] { EXPECT_TRUE(first.Get(kPods, "default", "a").status().Is(Code::kStopped)); });
  threads.emplace_back([&] { EXPECT_TRUE(second.Get(kPods, "default", "a").status().Is(Code::kStopped)); });
  threads.emplace_back([&] {
    EXPECT_TRUE(third
                    .Watch(
                        kPods, "", {.timeout_seconds = 600}, [](const WatchEvent&) { return true; }, stop_)
                    .ok());
  });
  while (there < 3) usleep(1000);
  const Instant start = SteadyNow();
  stop_.Set();
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(SecondsBetween(start, SteadyNow()), 20);
}

// Chunks and documents end where they like.
// A list, and how the server sends it: in pieces of so many bytes.
struct ListCase {
  const char* name;
  std::string body;
  size_t piece;
  std::vector<std::string> names;  // of the objects that were delivered
  std::string failure;             // a part of it; empty: none
};

TEST_F(RestClientTest, AListIsReadWhereverItIsCut) {
  const auto item = [](const std::string& name) {
    return Json{{"metadata", {{"name", name}, {"annotations", {{"x", "}]\\\"],{"}}}}}, {"list", {{{"items", {1}}}}}};
  };
  const std::string two = Json{{"kind", "PodList"},
                               {"metadata", {{"resourceVersion", "7"}, {"continue", "more"}}},
                               {"items", {item("a"), item("b")}}}
                              .dump();
  const std::string behind = R"({"items" : [ {"metadata":{"name":"a"}} ,)"
                             "\n"
                             R"({"metadata":{"name":"b"}} ] ,"metadata":{"resourceVersion":"7","continue":"more"}})";
  std::string deep =
      R"({"metadata":{"resourceVersion":"7","continue":"more"},"items":[{"metadata":{"name":"a"}},{"x":)" +
      std::string(200, '[') + std::string(200, ']') + R"(,"metadata":{"name":"b"}}]})";
  const ListCase cases[] = {
      {"whole", two, two.size(), {"a", "b"}, ""},
      {"byte by byte", two, 1, {"a", "b"}, ""},
      {"in sevens", two, 7, {"a", "b"}, ""},
      {"the metadata behind", behind, 3, {"a", "b"}, ""},
      {"cut off", two.substr(0, two.size() - 1), 5, {"a", "b"}, "no whole list"},
      {"no objects in it", R"({"metadata":{},"items":[1]})", 9, {}, "no object"},
      {"no JSON", R"({"items":[{"metadata":{"name":"a"}},{"metadata":}]})", 9, {"a"}, "no JSON"},
      {"too deep", deep, 100, {"a", "b"}, ""},
  };
  for (const ListCase& test : cases) {
    for (const bool chunked : {true, false}) {
      const TlsPeer peer(server_, [&](TlsStream& stream) {
        stream.ReadRequest();
        stream.Send(std::string("HTTP/1.1 200 OK\r\n") +
                    (chunked ? "Transfer-Encoding: chunked\r\n\r\n"
                             : "Content-Length: " + std::to_string(test.body.size()) + "\r\n\r\n"));
        for (size_t at = 0; at < test.body.size(); at += test.piece) {
          const std::string piece = test.body.substr(at, test.piece);
          char size[16];
          std::snprintf(size, sizeof size, "%zx\r\n", piece.size());
          stream.Send(chunked ? size + piece + "\r\n" : piece);
        }
        if (chunked) stream.Send("0\r\n\r\n");
      });
      RestClient client(To(peer.port()), clock_, stop_, {.request_seconds = 20});
      std::vector<std::string> names;
      const Result<ListEnd> end =
          client.List(kPods, "", {.limit = 2}, [&](const Json& pod) { names.push_back(pod["metadata"]["name"]); });
      EXPECT_EQ(names, test.names) << test.name << end.status().ToString();
      EXPECT_EQ(end.ok(), test.failure.empty()) << test.name << end.status().ToString();
      if (end.ok()) {
        EXPECT_EQ(end->resource_version, "7") << test.name;
        EXPECT_EQ(end->continue_token, "more") << test.name;
      } else {
        EXPECT_NE(end.status().message().find(test.failure), std::string::npos) << test.name << end.status().ToString();
      }
    }
  }
}

TEST(JsonItems, OneItemAndWhatStandsAroundThemAreBounded) {
  const std::string x(100, 'x');
  for (const std::string& body : {R"({"items":[{"a":")" + x + R"("}]})", R"({"kind":")" + x + R"(","items":[]})"}) {
    for (const size_t piece : {body.size(), size_t{1}}) {
      JsonItems items(64);
      Status status;
      for (size_t at = 0; at < body.size() && status.ok(); at += piece)
        status = items.Feed(body.data() + at, std::min(piece, body.size() - at), [](const Json&) { ADD_FAILURE(); });
      EXPECT_NE(status.message().find("longer than 64 bytes"), std::string::npos) << body << status.ToString();
    }
  }
}

// What was delivered is not delivered twice: the caller begins anew.
TEST_F(RestClientTest, AListThatBreaksIsNotRepeated) {
  std::atomic<int> lists{0};
  const TlsPeer peer(server_, [&](TlsStream& stream) {
    stream.ReadRequest();
    ++lists;
    stream.Send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"items\":[{\"metadata\":{}}");
  });
  RestClient client(To(peer.port()), clock_, stop_, {.request_seconds = 20});
  int objects = 0;
  EXPECT_TRUE(client.List(kPods, "", {}, [&](const Json&) { ++objects; }).status().Is(Code::kUnavailable));
  EXPECT_EQ(lists, 1);
  EXPECT_EQ(objects, 1);
}

TEST_F(RestClientTest, AListAsksForMetadataAloneWhereThatIsEnough) {
  std::vector<std::string> requests;
  const TlsPeer peer(server_, [&](TlsStream& stream) {
    for (std::string request; !(request = stream.ReadRequest()).empty();) {
      requests.push_back(request);
      stream.Answer(R"({"kind":"PartialObjectMetadataList","metadata":{},"items":[{"metadata":{"name":"a"}}]})");
    }
  });
  RestClient client(To(peer.port()), clock_, stop_, {.request_seconds = 20});
  std::vector<std::string> names;
  const auto on_item = [&](const Json& object) { names.push_back(object["metadata"]["name"]); };
  ASSERT_TRUE(client.List(kPods, "", {}, on_item).ok());
  ASSERT_TRUE(client.List(kPods, "", {.metadata_only = true}, on_item).ok());
  EXPECT_EQ(names, (std::vector<std::string>{"a", "a"}));
  ASSERT_EQ(requests.size(), 2);
  EXPECT_EQ(requests[0].find("PartialObjectMetadataList"), std::string::npos);
  EXPECT_NE(requests[1].find("as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"), std::string::npos);
}

TEST_F(RestClientTest, AWatchAsksForWhatThereIs) {
  std::string request;
  const TlsPeer peer(server_, [&](TlsStream& stream) {
    request = stream.ReadRequest();
    stream.Answer(R"({"kind":"Status","code":422,"message":"sendInitialEvents: Forbidden"})",
                  "422 Unprocessable Entity");
  });
  RestClient client(To(peer.port()), clock_, stop_, {.request_seconds = 20});
  const auto nothing = [](const WatchEvent&) { return true; };
  const Status status =
      client.Watch(kPods, "", {.resource_version = "0", .timeout_seconds = 5, .initial_events = true}, nothing, stop_);
  EXPECT_TRUE(status.Is(Code::kInvalid)) << status.ToString();
  for (const char* part :
       {"sendInitialEvents=true", "resourceVersionMatch=NotOlderThan", "allowWatchBookmarks=true", "resourceVersion=0"})
    EXPECT_NE(request.find(part), std::string::npos) << part;
}

TEST_F(RestClientTest, AWatchIsReadWhereverItIsCut) {
  const TlsPeer peer(server_, [](TlsStream& stream) {
    stream.ReadRequest();
    stream.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    std::string body;
    for (int i = 0; i < 50; ++i)
      body += Json{{"type", "ADDED"}, {"object", ObjectAt(std::string(i, 'n'), i)}}.dump() + "\n";
    for (size_t at = 0, size = 1; at < body.size(); at += size, size = size % 61 + 7) {
      const std::string piece = body.substr(at, size);
      char length[16];
      std::snprintf(length, sizeof length, "%zx\r\n", piece.size());
      stream.Send(length);
      stream.Send(piece + "\r\n");
    }
    stream.Send("0\r\n\r\n");
  });
  RestClient client(To(peer.port()), clock_, stop_);
  int events = 0;
  bool accepted = false;
  const auto on_event = [&](const WatchEvent& event) {
    EXPECT_TRUE(accepted);
    EXPECT_EQ(event.object["metadata"]["resourceVersion"], std::to_string(events++));
    return true;
  };
  const Status status =
      client.Watch(kPods, "", {.timeout_seconds = 60, .accepted = [&] { accepted = true; }}, on_event, stop_);
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(events, 50);
}

TEST_F(RestClientTest, AServerThatIsNotThereIsNamed) {
  const Status status = Get(To(1));
  EXPECT_TRUE(status.Is(Code::kUnavailable));
  EXPECT_NE(status.message().find("127.0.0.1:1: connect: Connection refused"), std::string::npos) << status.ToString();
  EXPECT_FALSE(Get(To(1, "no-such-host.invalid")).ok());
}

}  // namespace
}  // namespace trainyard::kube

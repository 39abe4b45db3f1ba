#include "operator/kube/kubeconfig.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "operator/kube/credentials.h"
#include "operator/net/base64.h"
#include "tests/operator/scripted_client.h"
#include "tests/operator/tls_peer.h"

namespace trainyard::kube {
namespace {

class KubeconfigTest : public testing::Test {
 protected:
  KubeconfigTest() : folder_(std::filesystem::path(testing::TempDir()) / ("kubeconfig-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    for (const char* name : {"HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"}) unsetenv(name);
  }
  ~KubeconfigTest() override { std::filesystem::remove_all(folder_); }

  std::string File(const std::string& name, const std::string& text, mode_t mode = 0600) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }
  Result<Endpoint> Read(const Json& cluster, const Json& user) const {
    Json whole = {{"server", "https://api.example:6443"}};
    if (cluster.is_object()) whole.update(cluster);
    const Json config = {{"current-context", "c"},
                         {"contexts", {{{"name", "c"}, {"context", {{"cluster", "k"}, {"user", "u"}}}}}},
                         {"clusters", {{{"name", "k"}, {"cluster", whole}}}},
                         {"users", {{{"name", "u"}, {"user", user}}}}};
    return ReadKubeconfig(File("config", config.dump()));
  }
  // The message of the refusal.
  std::string Refused(const Json& cluster, const Json& user) const {
    const Result<Endpoint> read = Read(cluster, user);
    return read.ok() ? "accepted" : read.status().message();
  }
  static void ExpectNames(const std::string& message, const std::string& field) {
    EXPECT_NE(message.find(field), std::string::npos) << field << " in: " << message;
  }

  const std::filesystem::path folder_;
  TestCertificate authority_ = TestCertificate::Authority("authority");
  TestCertificate client_{"client", &authority_};
};

TEST_F(KubeconfigTest, HonoursProxyServerNameAndImpersonation) {
  const Result<Endpoint> read = Read({{"proxy-url", "http://proxy.example:3128"}, {"tls-server-name", "inner.example"}},
                                     {{"token", "t"}, {"as", "alice"}, {"as-uid", "7"}, {"as-groups", {"one"}}});
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->proxy->host, "proxy.example");
  EXPECT_EQ(read->server_name, "inner.example");
  EXPECT_EQ(read->as.user, "alice");
  EXPECT_EQ(read->as.uid, "7");
  EXPECT_EQ(read->as.groups, std::vector<std::string>{"one"});
}

TEST_F(KubeconfigTest, WhatIsNotHonouredIsRefusedByName) {
  ExpectNames(Refused({{"insecure-skip-tls-verify", true}}, {}), "cluster.insecure-skip-tls-verify");
  ExpectNames(Refused({{"proxy-url", "socks5://proxy:1080"}}, {}), "cluster.proxy-url");
  ExpectNames(Refused({{"server", "http://api.example"}}, {}), "server");
  ExpectNames(Refused({{"something", "new"}}, {}), "cluster.something");
  ExpectNames(Refused({}, {{"username", "u"}, {"password", "p"}}), "user.password");
  ExpectNames(Refused({}, {{"auth-provider", {{"name", "gcp"}}}}), "user.auth-provider");
  ExpectNames(Refused({}, {{"as-user-extra", {{"scopes", {"all"}}}}}), "user.as-user-extra");
  ExpectNames(Refused({}, {{"as-groups", {"one"}}}), "user.as");
  ExpectNames(Refused({}, {{"token", 12345}}), "user.token");
  const Json list = {"x"};
  for (const char* field : {"server", "certificate-authority", "certificate-authority-data", "tls-server-name",
                            "proxy-url", "disable-compression"})
    ExpectNames(Refused({{field, list}}, {}), std::string("cluster.") + field + ": a value of type array is no");
  ExpectNames(Refused({{"certificate-authority", true}}, {}), "cluster.certificate-authority: true is no text");
  ExpectNames(Refused({{"disable-compression", "yes"}}, {}),
              "cluster.disable-compression: \"yes\" is no true or false");
  for (const char* field : {"token", "tokenFile", "client-certificate", "client-certificate-data", "client-key",
                            "client-key-data", "as", "as-uid"})
    ExpectNames(Refused({}, {{field, list}}), std::string("user.") + field + ": a value of type array is no text");
  ExpectNames(Refused({}, {{"as", false}}), "user.as: a value of type boolean is no text; put it in quotes");
  ExpectNames(Refused({}, {{"as", "bob"}, {"as-groups", "system:masters"}}),
              "user.as-groups: a value of type string is no list");
  ExpectNames(Refused({}, {{"as", "bob"}, {"as-groups", {"a", 5}}}),
              "user.as-groups: a value of type number is no text");
  ExpectNames(Refused({}, {{"exec", "aws"}}), "user.exec: a value of type string is no object");
  ExpectNames(Refused({}, "admin"), "user: a value of type string is no object");
  EXPECT_TRUE(
      Read({{"disable-compression", true}, {"insecure-skip-tls-verify", false}}, {{"extensions", {{"a", 1}}}}).ok());
}

TEST_F(KubeconfigTest, ABadCertificateOrKeyIsNamed) {
  const std::string own = client_.pem(), key = client_.key_pem(), other = authority_.key_pem();
  const auto data = [](const std::string& text) { return net::EncodeBase64(text); };
  ExpectNames(Refused({{"certificate-authority-data", data("nothing")}}, {}), "cluster.certificate-authority-data");
  ExpectNames(Refused({{"certificate-authority-data", "%%%"}}, {}), "cluster: certificate-authority-data");
  ExpectNames(Refused({{"certificate-authority", "none.pem"}}, {}), "none.pem");
  ExpectNames(Refused({}, {{"client-certificate-data", data(own)}}), "user.client-key");
  ExpectNames(Refused({}, {{"client-key-data", data(key)}}), "user.client-certificate");
  ExpectNames(Refused({}, {{"client-certificate-data", data("x")}, {"client-key-data", data(key)}}),
              "user.client-certificate-data");
  ExpectNames(Refused({}, {{"client-certificate-data", data(own)}, {"client-key-data", data("x")}}),
              "user.client-key-data");
  ExpectNames(Refused({}, {{"client-certificate-data", data(own)}, {"client-key-data", data(other)}}),
              "is not the key of the certificate");
  ExpectNames(
      Refused({}, {{"client-certificate", File("cut", own.substr(0, own.size() / 2))}, {"client-key-data", data(key)}}),
      "cut");
  EXPECT_TRUE(Read({{"certificate-authority-data", data(authority_.pem())}},
                   {{"client-certificate", File("own", own)}, {"client-key", File("key", key)}})
                  .ok());
}

TEST_F(KubeconfigTest, AMissingContextClusterOrUserIsNamed) {
  ExpectNames(ReadKubeconfig(File("a", "{}")).status().message(), "current-context");
  ExpectNames(
      ReadKubeconfig(File("b", R"({"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k"}}]})"))
          .status()
          .message(),
      "cluster");
  ExpectNames(ReadKubeconfig("/none").status().message(), "/none");
}

// A name that is no text reads as none, and the first entry without a name is not for whoever has none.
TEST_F(KubeconfigTest, NoNameFindsNobodysCredentials) {
  const Json cluster = {{"server", "https://api.example:6443"}}, secret = {{"token", "secret"}};
  const auto read = [&](const Json& context, const Json& users) {
    const Json config = {{"current-context", "c"},
                         {"contexts", {{{"name", "c"}, {"context", context}}}},
                         {"clusters", {{{"name", "k"}, {"cluster", cluster}}}},
                         {"users", users}};
    return ReadKubeconfig(File("config", config.dump()));
  };
  const auto refused = [&](const Json& context, const Json& users) {
    const Result<Endpoint> endpoint = read(context, users);
    return endpoint.ok() ? "token " + endpoint->token : endpoint.status().message();
  };
  const Json named = {{{"name", "u"}, {"user", secret}}}, nameless = {{{"user", secret}}};
  ExpectNames(refused({{"cluster", "k"}, {"user", 5}}, named), "context c.user: 5 is no text");
  ExpectNames(refused({{"cluster", true}, {"user", "u"}}, named), "context c.cluster: true is no text");
  ExpectNames(refused({{"cluster", "k"}, {"impersonate", "x"}}, named), "context c.impersonate: is not supported");
  ExpectNames(refused({{"cluster", "k"}, {"user", "u"}}, {{{"name", 5}, {"user", secret}}}),
              "users[0].name: a value of type number is no text");
  ExpectNames(refused({{"cluster", "k"}, {"user", "u"}}, {"u"}), "users[0]: a value of type string is no object");
  ExpectNames(refused({{"cluster", "k"}, {"user", "u"}}, {{"u", secret}}), "users: ");
  for (const Json& users : {named, nameless, Json::array()}) {
    const Result<Endpoint> nobody = read({{"cluster", "k"}, {"namespace", "team"}}, users);
    ASSERT_TRUE(nobody.ok()) << nobody.status().ToString();
    EXPECT_EQ(nobody->token, "") << users;
  }
  ExpectNames(ReadKubeconfig(File("n", R"({"current-context": 5})")).status().message(),
              "current-context: 5 is no text");
}

// The file of a token is read while all requests wait.
TEST_F(KubeconfigTest, AFileThatIsNoneIsNotWaitedFor) {
  const std::string fifo = (folder_ / "fifo").string();
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  ExpectNames(Refused({{"certificate-authority", fifo}}, {}), "is no regular file");
  const Result<Endpoint> read = Read({}, {{"tokenFile", fifo}});
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  TurnedClock clock;
  StopFlag stop;
  const Result<Identity> identity = Credentials(*read, clock).Now(net::Wait::For(60, stop));
  EXPECT_TRUE(identity.status().Is(Code::kUnauthorized)) << identity.status().ToString();
}

TEST_F(KubeconfigTest, APluginOfAnotherVersionIsRefused) {
  const Json beta = {{"apiVersion", "client.authentication.k8s.io/v1beta1"}, {"command", "x"}};
  ExpectNames(Refused({}, {{"exec", beta}}), "user.exec.apiVersion: client.authentication.k8s.io/v1beta1");
  const Json asks = {
      {"apiVersion", "client.authentication.k8s.io/v1"}, {"command", "x"}, {"interactiveMode", "Always"}};
  ExpectNames(Refused({}, {{"exec", asks}}), "user.exec.interactiveMode");
}

TEST_F(KubeconfigTest, WhatAPluginIsGivenIsText) {
  const std::pair<Json, const char*> cases[] = {
      {{{"args", "x"}}, "user.exec.args: a value of type string is no list"},
      {{{"args", {1}}}, "user.exec.args: a value of type number is no text"},
      {{{"env", {{{"name", "V"}, {"value", 5}}}}}, "user.exec.env[0]: is no name and value"},
      {{{"env", {7}}}, "user.exec.env[0]: is no name and value"},
  };
  for (const auto& [field, says] : cases) {
    Json exec = {{"apiVersion", "client.authentication.k8s.io/v1"}, {"command", "x"}};
    exec.update(field);
    ExpectNames(Refused({}, {{"exec", exec}}), says);
  }
}

// What is said goes to a log.
TEST_F(KubeconfigTest, NoRefusalTellsACredential) {
  const std::string secret = "12345678";
  const Json number = 12345678;
  const auto plugin = [](const char* field, const Json& value) {
    return Json{{"exec", {{"apiVersion", "client.authentication.k8s.io/v1"}, {"command", "x"}, {field, value}}}};
  };
  std::vector<std::string> told;
  for (const char* field : {"token", "client-certificate-data", "client-key-data"}) {
    for (const Json& value : {number, Json{number}, Json{secret}, Json{{"of", secret}}})
      told.push_back(Refused({}, {{field, value}}));
  }
  for (const Json& value : {Json{{{"name", "KEY"}, {"value", number}}}, Json{number}, Json{{"KEY", secret}}})
    told.push_back(Refused({}, plugin("env", value)));
  told.push_back(Refused({}, plugin("args", {number})));
  told.push_back(Refused({}, plugin("args", "--key=" + secret)));
  told.push_back(Refused({}, number));
  told.push_back(Refused({{"proxy-url", {"http://me:" + secret + "@proxy.example"}}}, {}));
  const Json users = {{"u", {{"token", secret}}}};
  for (const Json& whole : {users, Json{secret}, Json{{{"name", number}}}}) {
    const Json config = {{"current-context", "c"},
                         {"contexts", {{{"name", "c"}, {"context", {{"cluster", "k"}, {"user", "u"}}}}}},
                         {"clusters", {{{"name", "k"}, {"cluster", {{"server", "https://api.example:6443"}}}}}},
                         {"users", whole}};
    told.push_back(ReadKubeconfig(File("config", config.dump())).status().message());
  }
  for (const std::string& message : told) {
    ExpectNames(message, ": ");
    EXPECT_EQ(message.find(secret), std::string::npos) << message;
  }
}

TEST_F(KubeconfigTest, AServerIsAHostAndAPort) {
  for (const char* server : {"https://[::1]x16443", "https://[::1]6443", "https://[::1", "https://[]:6443",
                             "https://a:", "https://a:0", "https://a:65536", "https://a:b"})
    ExpectNames(Refused({{"server", server}}, {}), std::string("server: ") + server);
  EXPECT_EQ(Read({{"server", "https://[::1]:6443"}}, {})->port, 6443);
  EXPECT_EQ(Read({{"server", "https://[::1]"}}, {})->port, 443);
}

TEST_F(KubeconfigTest, AFileWithoutAnEndIsRefused) {
  EXPECT_FALSE(ReadKubeconfig("/dev/zero").ok());
  EXPECT_NE(Refused({{"certificate-authority", "/dev/zero"}}, {}), "accepted");
}

class PluginTest : public KubeconfigTest {
 protected:
  // A plugin that runs `script`, beside the kubeconfig.
  Endpoint WithPlugin(const std::string& script) const {
    File("plugin.sh", "#!/bin/sh\n" + script, 0700);
    const Json exec = {
        {"apiVersion", "client.authentication.k8s.io/v1"}, {"command", "./plugin.sh"},    {"args", {"get-token"}},
        {"env", {{{"name", "WHO"}, {"value", "me"}}}},     {"installHint", "install it"}, {"interactiveMode", "Never"}};
    const Result<Endpoint> read = Read({}, {{"exec", exec}});
    EXPECT_TRUE(read.ok()) << read.status().ToString();
    return *read;
  }
  static std::string Credential(const std::string& status) {
    return R"(echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": )" + status +
           "}'";
  }
  net::Wait Soon() const { return net::Wait::For(60, stop_); }
  TurnedClock clock_;
  StopFlag stop_;
};

TEST_F(PluginTest, GivesATokenUntilItExpires) {
  clock_.now = *ParseTime("2026-01-01T00:00:00Z");
  const std::string count = (folder_ / "count").string();
  Credentials credentials(
      WithPlugin(
          "[ \"$1\" = get-token ] && [ \"$WHO\" = me ] && [ -n \"$KUBERNETES_EXEC_INFO\" ] || exit 3\n"
          "echo x >> " +
          count + "\n" +
          Credential("{\"token\": \"'$(wc -l < " + count + ")'\", \"expirationTimestamp\": \"2026-01-01T01:00:00Z\"}")),
      clock_);
  EXPECT_EQ(credentials.Now(Soon())->token, "1");
  clock_.Pass(3000);
  const Result<Identity> again = credentials.Now(Soon());
  EXPECT_EQ(again->token, "1") << "it is still good";
  credentials.Refuse(*again);
  EXPECT_EQ(credentials.Now(Soon())->token, "2") << "the server did not think so";
  clock_.Pass(700);
  EXPECT_EQ(credentials.Now(Soon())->token, "3") << "expired";
  EXPECT_EQ(credentials.Now(Soon())->token, "3") << "so is the new one, by this clock: not a plugin for each request";
  clock_.Pass(11);
  EXPECT_EQ(credentials.Now(Soon())->token, "4");
}

// While it runs, which may take longer than a lease has.
TEST_F(PluginTest, RunsAgainBeforeWhatItGaveExpiresWhileThatIsShown) {
  clock_.now = *ParseTime("2026-01-01T00:00:00Z");
  const std::string count = (folder_ / "count").string(), go = (folder_ / "go").string();
  Credentials credentials(WithPlugin("echo x >> " + count + "\n[ $(wc -l < " + count + ") = 1 ] || while [ ! -e " + go +
                                     " ]; do sleep 0.05; done\n" +
                                     Credential("{\"token\": \"'$(wc -l < " + count +
                                                ")'\", \"expirationTimestamp\": \"2026-01-01T01:00:00Z\"}")),
                          clock_);
  EXPECT_EQ(credentials.Now(Soon())->token, "1");
  clock_.Pass(3570);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(credentials.Now(Soon())->token, "1") << "nobody waits";
  File("go", "");
  for (int i = 0; i < 3000 && credentials.Now(Soon())->token == "1"; ++i) usleep(10000);
  EXPECT_EQ(credentials.Now(Soon())->token, "2");
}

TEST_F(PluginTest, AFailureBeforeWhatItGaveExpiresIsNone) {
  clock_.now = *ParseTime("2026-01-01T00:00:00Z");
  const std::string once = (folder_ / "once").string(), twice = (folder_ / "twice").string();
  Credentials credentials(
      WithPlugin("[ ! -e " + once + " ] || { touch " + twice + "; exit 7; }\ntouch " + once + "\n" +
                 Credential("{\"token\": \"t\", \"expirationTimestamp\": \"2026-01-01T01:00:00Z\"}")),
      clock_);
  EXPECT_EQ(credentials.Now(Soon())->token, "t");
  clock_.Pass(3570);
  EXPECT_EQ(credentials.Now(Soon())->token, "t");
  for (int i = 0; i < 3000 && !std::filesystem::exists(twice); ++i) usleep(10000);
  ASSERT_TRUE(std::filesystem::exists(twice)) << "it was asked again";
  EXPECT_EQ(credentials.Now(Soon())->token, "t") << "it is still good";
  clock_.Pass(31);
  EXPECT_FALSE(credentials.Now(Soon()).ok()) << "now it has expired";
}

// A server that refuses everyone makes no run of each request.
TEST_F(PluginTest, OneThatGivesTheSameAgainRests) {
  const std::string count = (folder_ / "count").string();
  Credentials credentials(WithPlugin("echo x >> " + count + "\n" + Credential("{\"token\": \"same\"}")), clock_);
  const auto runs = [&] { return std::filesystem::file_size(count) / 2; };
  for (const size_t expected : {1u, 2u, 2u, 2u}) {
    const Result<Identity> now = credentials.Now(Soon());
    ASSERT_TRUE(now.ok());
    EXPECT_EQ(runs(), expected);
    credentials.Refuse(*now);
  }
  clock_.Pass(11);
  EXPECT_TRUE(credentials.Now(Soon()).ok());
  EXPECT_EQ(runs(), 3u);
}

TEST_F(PluginTest, GivesACertificate) {
  const auto text = [](const std::string& pem) { return Json(pem).dump(); };
  const std::string credential = Credential("{\"clientCertificateData\": " + text(client_.pem()) +
                                            ", \"clientKeyData\": " + text(client_.key_pem()) + "}");
  std::string script = credential;
  script.replace(0, 4, "printf '%s'");
  Credentials credentials(WithPlugin(script), clock_);
  const Result<Identity> identity = credentials.Now(Soon());
  ASSERT_TRUE(identity.ok()) << identity.status().ToString();
  EXPECT_TRUE(identity->token.empty());
  const X509* shown = SSL_CTX_get0_certificate(identity->tls->get());
  ASSERT_TRUE(shown);
  EXPECT_EQ(X509_cmp(shown, client_.certificate()), 0);
}

// Whoever started this program may have its children's ends thrown away.
TEST_F(PluginTest, OneWhoseEndNobodyKnowsGaveNothing) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  const auto given = RunExecPlugin(*WithPlugin(Credential("{\"token\": \"t\"}") + "\nexit 7").exec, Soon());
  std::signal(SIGCHLD, before);
  EXPECT_TRUE(given.status().Is(Code::kUnavailable)) << given.status().ToString();
  ExpectNames(given.status().message(), "its end is unknown");
}

// A leader's requests wait for a few seconds only, and a plugin that asks a cloud takes as many.
TEST_F(PluginTest, OneThatTakesLongerThanARequestMayIsWaitedFor) {
  Credentials credentials(WithPlugin("sleep 1\n" + Credential("{\"token\": \"late\"}")), clock_, 30);
  const Result<Identity> identity = credentials.Now(net::Wait::For(0.1, stop_));
  ASSERT_TRUE(identity.ok()) << identity.status().ToString();
  EXPECT_EQ(identity->token, "late");
}

TEST_F(PluginTest, AFailureNamesTheCommandItsCodeAndItsHint) {
  Credentials credentials(WithPlugin("exit 7"), clock_);
  const std::string message = credentials.Now(Soon()).status().message();
  for (const char* part : {"plugin.sh", "exit code 7", "install it"}) ExpectNames(message, part);
  EXPECT_FALSE(Credentials(WithPlugin("echo nothing"), clock_).Now(Soon()).ok());
  EXPECT_FALSE(Credentials(WithPlugin(Credential("{}")), clock_).Now(Soon()).ok());
}

// Whether it has ended; whoever inherited it may leave it lying.
bool HasEnded(pid_t pid) {
  std::string stat;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/stat"), stat);
  return stat.empty() || stat.substr(stat.rfind(')') + 1).starts_with(" Z");
}

// With what it has started.
TEST_F(PluginTest, OneThatHangsOrNeverEndsIsKilled) {
  const Instant start = SteadyNow();
  const std::string child = (folder_ / "child").string();
  for (const std::string& script :
       {"sleep 600 & echo $! > " + child + "; sleep 600", std::string("exec 1>&-; sleep 600")}) {
    const auto given = RunExecPlugin(*WithPlugin(script).exec, net::Wait::For(2, stop_));
    EXPECT_TRUE(given.status().Is(Code::kDeadline)) << given.status().ToString();
  }
  pid_t pid = 0;
  std::ifstream(child) >> pid;
  ASSERT_GT(pid, 0) << "the script did not get so far within two seconds";
  for (int i = 0; i < 1000 && !HasEnded(pid); ++i) usleep(10000);
  EXPECT_TRUE(HasEnded(pid)) << pid;
  EXPECT_FALSE(RunExecPlugin(*WithPlugin("cat /dev/zero").exec, Soon()).ok());
  EXPECT_LT(SecondsBetween(start, SteadyNow()), 100);
  stop_.Set();
  EXPECT_TRUE(RunExecPlugin(*WithPlugin("sleep 600").exec, Soon()).status().Is(Code::kStopped));
}

// As Go reads it: `base64` breaks its lines.
TEST(Base64, LinesMayBeBroken) {
  const std::string text(100, 'a');
  std::string lines = net::EncodeBase64(text);
  lines.insert(76, "\r\n");
  EXPECT_EQ(net::DecodeBase64(lines + "\n").value(), text);
  EXPECT_EQ(net::DecodeBase64("QQ==\n").value(), "A");
  EXPECT_EQ(net::DecodeBase64("").value(), "");
  for (const char* wrong : {"QQ==QUJD", "Q===", "=QQQ", "Q", "QQ==="})
    EXPECT_FALSE(net::DecodeBase64(wrong).ok()) << wrong;
}

TEST(Proxy, OfTheEnvironment) {
  std::map<std::string, std::string> variables;
  const auto get = [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  const auto uses = [&](const std::string& host, int port = 6443) {
    const auto proxy = net::ProxyOfEnvironment(host, port, get);
    EXPECT_TRUE(proxy.ok()) << proxy.status().ToString();
    return proxy->has_value();
  };
  EXPECT_FALSE(uses("api.example"));
  variables["HTTPS_PROXY"] = "http://[fd00::1]:3128/";
  EXPECT_TRUE(uses("api.example"));
  EXPECT_EQ((*net::ProxyOfEnvironment("api.example", 1, get))->host, "fd00::1");
  for (const char* own : {"localhost", "127.0.0.1", "127.3.4.5", "::1"}) EXPECT_FALSE(uses(own)) << own;
  variables["NO_PROXY"] = "example, .inner.test,10.0.0.0/8 ,fd00::/8,192.168.0.1, only.test:443";
  for (const char* excepted :
       {"example", "api.example", "API.Example", "a.inner.test", "10.200.0.1", "fd12::1", "192.168.0.1"})
    EXPECT_FALSE(uses(excepted)) << excepted;
  for (const char* other : {"badexample", "inner.test", "11.0.0.1", "fe00::1", "192.168.0.2", "only.test"})
    EXPECT_TRUE(uses(other)) << other;
  EXPECT_FALSE(uses("only.test", 443));
  variables["NO_PROXY"] = "10.0.0.0/,10.0.0.0/99999999999,fd00::/-1";
  for (const char* host : {"203.0.113.9", "10.0.0.1", "fe00::1"})
    EXPECT_TRUE(uses(host)) << host << ": that is no network";
  variables["NO_PROXY"] = "*";
  EXPECT_FALSE(uses("api.example"));
  variables = {{"https_proxy", "https://proxy:1"}};
  const auto refused = net::ProxyOfEnvironment("api.example", 1, get);
  EXPECT_NE(refused.status().message().find("HTTPS_PROXY"), std::string::npos);
  variables = {{"https_proxy", "http://user:secret@proxy:x"}};
  EXPECT_EQ(net::ProxyOfEnvironment("api.example", 1, get).status().message().find("secret"), std::string::npos);
}

}  // namespace
}  // namespace trainyard::kube

// The whole control plane in this process: API over TLS, REST client, caches, reconciler, agent, and
// real processes. Runs under the sanitizers too.
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <vector>

#include "operator/api/json.h"
#include "operator/base/descriptor.h"
#include "operator/kube/rest_client.h"
#include "operator/local/api/api_server.h"
#include "operator/local/api/table.h"
#include "operator/local/live_view.h"
#include "operator/local/local_command.h"
#include "operator/local/node/address_block.h"
#include "operator/local/submit.h"
#include "operator/progress_poller.h"
#include "operator/reconcile/conditions.h"
#include "tests/operator/builders.h"

namespace trainyard {
namespace {

using reconcile::JobObject;

class LocalTest : public testing::Test {
 protected:
  LocalTest() : folder_(std::filesystem::path(testing::TempDir()) / ("local-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~LocalTest() override { std::filesystem::remove_all(folder_); }

  // The exit code of `local` for a job whose two workers run `script`.
  int Run(const std::string& script, const nlohmann::json& spec = nlohmann::json::object(), bool quiet = true) {
    nlohmann::json job = JobObject("job", 2);
    job["metadata"] = {{"name", "job"}};
    job["spec"]["template"]["spec"]["containers"][0]["command"] = nlohmann::json::array({"sh", "-c", script});
    job["spec"]["restart"]["backoff"] = {{"initialSeconds", 0}, {"maxSeconds", 0}};
    job["spec"].merge_patch(spec);
    const std::string file = (folder_ / "job.json").string();
    std::ofstream(file) << job;
    return RunLocal({.file = file, .serve = 0, .state_dir = (folder_ / "state").string(), .quiet = quiet});
  }
  // Between two runs.
  void EditSaved(const std::function<void(nlohmann::json&)>& edit) const {
    const std::filesystem::path path = folder_ / "state/api.json";
    nlohmann::json saved = nlohmann::json::parse(std::ifstream(path));
    edit(saved);
    std::ofstream(path) << saved;
  }
  const std::filesystem::path folder_;
};

TEST_F(LocalTest, Succeeds) { EXPECT_EQ(Run("exit 0"), 0); }

TEST_F(LocalTest, EndsWithTheCulpritsCode) { EXPECT_EQ(Run("[ $RANK = 0 ] && exit 69; exit 64"), 64); }

TEST_F(LocalTest, RestartsAllWorkersTogether) {
  const std::string script = "[ $TRAINYARD_ATTEMPT = 1 ] && exit 70; exit 0";
  EXPECT_EQ(Run(script), 0);
  EXPECT_EQ(Run(script), 0) << "the job in the state directory has ended";
  EXPECT_EQ(Run("exit 65"), 65) << "with another template it is made anew";
}

TEST_F(LocalTest, AJobThatFailedNeverEndsWith0) {
  api::TrainingJob job;
  reconcile::SetCondition(job.status, reconcile::kFailedCondition, true, "MaxRestarts", "", Time(), 1);
  EXPECT_EQ(local::ExitCode(job), 1) << "no worker is to blame";
  for (const auto& [culprits, code] : {std::pair<int64_t, int>(3, 3), {0, 1}, {256, 1}, {int64_t{1} << 32, 1}}) {
    job.status.last_failure = api::Failure{.exit_code = culprits};
    EXPECT_EQ(local::ExitCode(job), code);
  }
  job.status.attempt = 2;
  job.status.last_failure = api::Failure{.attempt = 1, .exit_code = 75};
  EXPECT_EQ(local::ExitCode(job), 1) << "a deadline has ended the second attempt, and nobody else";
}

TEST_F(LocalTest, PodsThatAreNotWhatTheyWereCrashNothing) {
  EXPECT_EQ(Run("exit 0"), 0);
  EditSaved([](nlohmann::json& saved) {
    nlohmann::json& pods = saved["collections"]["pods."];
    ASSERT_EQ(pods.size(), 2u);
    nlohmann::json strange = pods["default/job-1-0"];
    strange["metadata"]["name"] = "a-stranger";
    strange["metadata"]["uid"] = "another";
    strange["metadata"].erase("ownerReferences");
    for (const auto& [key, pod] : pods.items()) pod["spec"]["containers"] = nlohmann::json::array();
    pods["default/a-stranger"] = strange;
  });
  testing::internal::CaptureStdout();
  EXPECT_EQ(Run("exit 0", nlohmann::json::object(), false), 0) << "nothing is run, and what there was is summed up";
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_EQ(said.find("a-stranger"), std::string::npos) << said;
}

TEST_F(LocalTest, AVolumeIsAFolder) {
  const nlohmann::json spec = {{"checkpoint", {{"volume", {{"persistentVolumeClaim", {{"claimName", "c"}}}}}}}};
  // Where the kernel allows it at its mount path, else where TRAINYARD_VOLUMES says.
  const std::string script = R"sh(
    folder=/checkpoints
    [ -z "$TRAINYARD_VOLUMES" ] || folder=$(echo "$TRAINYARD_VOLUMES" | sed 's/.*checkpoints":"\([^"]*\)".*/\1/')
    touch "$folder/worker-$RANK")sh";
  EXPECT_EQ(Run(script, spec), 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "state/claims/default/c/worker-1"));
}

// Its pods are gone from the API, and nobody had the time to remove what was theirs.
TEST_F(LocalTest, WhatAKilledLifeLeftOfPodsThatAreGoneIsRemoved) {
  const std::filesystem::path pods = folder_ / "state/pods", stray = pods / "default_gone-1-0_uid",
                              precious = folder_ / "precious";
  for (const char* folder : {"volumes/data", "mounts"}) {
    for (const std::filesystem::path& place : {stray, precious, pods / "somebody", pods / "a_b_c"})
      std::filesystem::create_directories(place / folder);
  }
  std::filesystem::remove(pods / "a_b_c/mounts");
  std::filesystem::create_directory_symlink(precious, pods / "default_link-1-0_uid");
  std::ofstream(stray / "trainer.log") << "last words";
  EXPECT_EQ(Run("exit 0"), 0);
  EXPECT_FALSE(std::filesystem::exists(stray / "volumes"));
  EXPECT_TRUE(std::filesystem::exists(stray / "trainer.log"));
  EXPECT_TRUE(std::filesystem::exists(precious / "volumes/data")) << "no link is followed";
  for (const char* other : {"somebody", "a_b_c"})
    EXPECT_TRUE(std::filesystem::exists(pods / other / "volumes/data")) << "what is no pod's was there before us";
}

TEST_F(LocalTest, ABadJobIsRefused) {
  EXPECT_EQ(Run("exit 0", {{"workers", 0}}), 64);
  EXPECT_EQ(RunLocal({.file = (folder_ / "none.yaml").string(), .quiet = true}), 64);
}

class ServerTest : public testing::Test {
 protected:
  void SetUp() override {
    certificate_ = *local::MakeCertificate();
    server_ = std::make_unique<local::ApiServer>(api_, clock_, certificate_, "secret",
                                                 [this](const nlohmann::json&, const std::string&) { return log_; });
    ASSERT_TRUE(server_->Start(0).ok());
  }
  kube::Endpoint Endpoint(const std::string& token = "secret") {
    return {.host = "127.0.0.1",
            .port = server_->port(),
            .ca_pem = certificate_.pem,
            .token = token,
            .token_file = "",
            .certificate_pem = "",
            .key_pem = ""};
  }
  const Instant start_ = SteadyNow();
  SystemClock clock_;
  StopFlag stop_;
  local::MemoryApi api_{clock_, 1};
  local::Certificate certificate_;
  std::filesystem::path log_ = "/dev/null";
  std::unique_ptr<local::ApiServer> server_;
};

// As a person writes it.
kube::Json NewJob(const std::string& name) {
  kube::Json job = JobObject(name, 2);
  job["metadata"] = {{"name", name}};
  return job;
}

TEST_F(ServerTest, TheClientSpeaksWithTheServer) {
  kube::RestClient client(Endpoint(), clock_, stop_);
  const auto created = client.Create(kube::kTrainingJobs, "default", NewJob("job"), {});
  ASSERT_TRUE(created.ok()) << created.status().ToString();
  EXPECT_TRUE(client.Create(kube::kTrainingJobs, "default", NewJob("job"), {}).status().Is(Code::kAlreadyExists));
  EXPECT_TRUE(client.Get(kube::kTrainingJobs, "default", "none").status().Is(Code::kNotFound));
  EXPECT_TRUE(client.Create(kube::kTrainingJobs, "default", NewJob("Bad"), {}).status().Is(Code::kInvalid));
  int jobs = 0;
  EXPECT_TRUE(client.List(kube::kTrainingJobs, "", {}, [&](const kube::Json&) { ++jobs; }).ok());
  EXPECT_EQ(jobs, 1);
  const kube::Json stale = {{"metadata", {{"resourceVersion", "1"}}}, {"status", {{"attempt", 1}}}};
  EXPECT_TRUE(
      client.MergePatch(kube::kTrainingJobs, "default", "job", "status", stale, {}).status().Is(Code::kConflict));
  EXPECT_TRUE(client.Delete(kube::kTrainingJobs, "default", "job", {.uid = "another", .grace_seconds = std::nullopt})
                  .Is(Code::kConflict));
  EXPECT_TRUE(client.Delete(kube::kTrainingJobs, "default", "job", {}).ok());
}

TEST_F(ServerTest, NothingWorksWithoutTokenOrAuthority) {
  kube::RestClient stranger(Endpoint("wrong"), clock_, stop_);
  EXPECT_TRUE(stranger.Get(kube::kPods, "default", "x").status().Is(Code::kUnauthorized));
  kube::Endpoint other = Endpoint();
  other.ca_pem = local::MakeCertificate()->pem;
  kube::RestClient fooled(other, clock_, stop_);
  EXPECT_TRUE(fooled.Get(kube::kPods, "default", "x").status().Is(Code::kUnavailable));
  // The machine's own authorities have no say.
  const std::string file = testing::TempDir() + "authorities-" + std::to_string(getpid()) + ".pem";
  std::ofstream(file) << certificate_.pem;
  setenv("SSL_CERT_FILE", file.c_str(), 1);
  kube::RestClient trusting(other, clock_, stop_);
  EXPECT_TRUE(trusting.Get(kube::kPods, "default", "x").status().Is(Code::kUnavailable));
  unsetenv("SSL_CERT_FILE");
  std::filesystem::remove(file);
}

// Whoever walks through such a value goes as deep: it is refused where it comes in.
TEST_F(ServerTest, ADeeplyNestedBodyIsRefused) {
  httplib::SSLClient client("127.0.0.1", server_->port());
  client.enable_server_certificate_verification(false);
  const httplib::Headers headers = {{"Authorization", "Bearer secret"}};
  const std::string jobs = "/apis/trainyard.dev/v1alpha1/namespaces/default/trainingjobs";
  const std::string open(100'000, '['), whole = R"({"spec":)" + open + std::string(100'000, ']') + "}";
  for (const std::string& body : {open, whole}) {
    const httplib::Result created = client.Post(jobs, headers, body, "application/json");
    ASSERT_TRUE(created);
    EXPECT_EQ(created->status, 400) << created->body;
    for (const char* type :
         {"application/merge-patch+json", "application/json-patch+json", "application/apply-patch+yaml"}) {
      const httplib::Result patched = client.Patch(jobs + "/job?fieldManager=me", headers, body, type);
      ASSERT_TRUE(patched) << type;
      EXPECT_EQ(patched->status, 400) << type << ": " << patched->body;
    }
  }
}

TEST(AddressBlock, NoTwoRunsHaveTheSame) {
  std::vector<std::unique_ptr<local::AddressBlock>> blocks;
  std::set<int> numbers;
  constexpr size_t kAtOnce = 20;  // by chance alone two of them are the same half of the time
  while (blocks.size() < kAtOnce) {
    blocks.push_back(std::make_unique<local::AddressBlock>());
    numbers.insert(blocks.back()->number());
  }
  EXPECT_EQ(numbers.size(), kAtOnce);
  EXPECT_GE(*numbers.begin(), local::kFirstBlock);
  EXPECT_LE(*numbers.rbegin(), local::kLastBlock);
}

TEST(AddressBlock, IsFreeAgainAfterwards) {
  const auto bind_name_of = [](int block) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = "trainyard-127." + std::to_string(block);
    std::copy(name.begin(), name.end(), address.sun_path + 1);
    const Descriptor file(socket(AF_UNIX, SOCK_DGRAM, 0));
    return bind(file.get(), reinterpret_cast<sockaddr*>(&address),
                static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size()));
  };
  auto block = std::make_unique<local::AddressBlock>();
  const int number = block->number();
  EXPECT_NE(bind_name_of(number), 0);
  block.reset();
  EXPECT_EQ(bind_name_of(number), 0);
}

TEST(Table, ShowsAPodOfAnyShape) {
  const nlohmann::json pod = {{"metadata", {{"name", "p"}}},
                              {"spec", {{"nodeName", 5}}},
                              {"status", {{"podIP", 5}, {"phase", {}}, {"containerStatuses", {5}}}}};
  const nlohmann::json table = local::MakeTable(kube::kPods, {pod}, "1", true, Time{});
  EXPECT_EQ(table["rows"][0]["cells"], nlohmann::json::array({"p", "0/0", "", 0, "<unknown>", "<none>", "<none>"}));
}

TEST(ReportFromStatus, WhatIsNotKnownIsNotZero) {
  const auto report = ReportFromStatus(
      R"({"job_uid": "u", "attempt": 2, "step": 0, "total_steps": 9, "loss": null, "samples_per_second": null, "eta_seconds": null})",
      Time{});
  ASSERT_TRUE(report);
  EXPECT_FALSE(report->progress.loss || report->progress.samples_per_second || report->progress.eta_seconds);
  api::JobStatus status{.progress = report->progress};
  EXPECT_FALSE(api::StatusToJson(status)["progress"].contains("loss"));
  EXPECT_EQ(local::LiveView::StateLine(status).find("loss"), std::string::npos);
  status.progress.loss = 0;
  EXPECT_EQ(api::StatusToJson(status)["progress"]["loss"], 0);
  EXPECT_NE(local::LiveView::StateLine(status).find("loss 0.0000"), std::string::npos);
}

TEST(ReportFromStatus, ACheckpointWithoutAStepIsNone) {
  for (const char* step : {"null", "-1", "\"9\""}) {
    const std::string body =
        R"({"job_uid": "u", "attempt": 1, "step": -1, "checkpoint": {"durable": true, "bytes": 5, "step": )";
    const auto report = ReportFromStatus(body + step + "}}", Time{});
    ASSERT_TRUE(report) << step;
    EXPECT_FALSE(report->checkpoint.step) << step;
    EXPECT_FALSE(report->progress.step) << step;
  }
}

// Any image answers, and what it says stands in the job's status.
TEST(ReportFromStatus, WhereCheckpointsAreIsAnAbsolutePath) {
  const std::string body = R"({"job_uid": "u", "attempt": 1, "checkpoint": {"durable": true, "step": 5, "path": )";
  const auto path = [&](const std::string& json) {
    const auto report = ReportFromStatus(body + json + "}}", Time{});
    return report ? report->checkpoint.path : "no report";
  };
  EXPECT_EQ(path(R"("/checkpoints/run")"), "/checkpoints/run");
  for (const std::string& none :
       {std::string(R"("run")"), std::string("7"), std::string("null"), '"' + std::string(1025, '/') + '"'})
    EXPECT_EQ(path(none), "") << none;
}

TEST(ReportFromStatus, NumbersForPeopleHaveFewDigits) {
  const auto report = ReportFromStatus(R"({"job_uid": "u", "attempt": 1, "loss": 1.253359317779541})", Time{});
  ASSERT_TRUE(report);
  EXPECT_EQ(kube::Json(report->progress.loss.value_or(0)).dump(), "1.25336");
}

TEST_F(ServerTest, AWatchDeliversAndIsInterrupted) {
  kube::RestClient client(Endpoint(), clock_, stop_);
  const uint64_t start = api_.version();
  std::atomic<int> events{0};
  std::thread watcher([&] {
    const Status status = client.Watch(
        kube::kTrainingJobs, "",
        {.label_selector = "", .resource_version = std::to_string(start), .timeout_seconds = 300},
        [&](const kube::WatchEvent& event) {
          events += event.type == "ADDED" ? 1 : 0;
          return true;
        },
        stop_);
    EXPECT_TRUE(status.ok()) << status.ToString();
  });
  api_.Create(kube::kTrainingJobs, "default", JobObject("job", 1), {});
  for (int i = 0; i < 500 && events == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(events, 1);
  stop_.Set();
  watcher.join();  // at once, not after 300 s: the test's time says so
}

TEST_F(ServerTest, AnOldWatchIsGone) {
  kube::RestClient client(Endpoint(), clock_, stop_);
  api_.Create(kube::kTrainingJobs, "default", JobObject("job", 1), {});
  api_.Compact();
  std::string type;
  const Status status = client.Watch(
      kube::kTrainingJobs, "", {.label_selector = "", .resource_version = "1", .timeout_seconds = 5},
      [&](const kube::WatchEvent& event) {
        type = event.type;
        return false;
      },
      stop_);
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(type, "ERROR");
}

// A client of the server that sends what it likes, when it likes.
class SlowSender {
 public:
  explicit SlowSender(int port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  bool Handshake() {
    SSL_set_fd(tls_.get(), socket_.get());
    return SSL_connect(tls_.get()) == 1;
  }
  // The next of a request, or of the handshake before it.
  void SendByte() {
    if (SSL_is_init_finished(tls_.get())) {
      SSL_write(tls_.get(), "G", 1);
    } else {
      send(socket_.get(), &hello_.at(sent_++), 1, MSG_NOSIGNAL);
    }
  }
  // Whether the server has closed it; what it sent before that is read.
  bool IsClosed() const {
    char ignored[4096];
    for (;;) {
      const ssize_t got = recv(socket_.get(), ignored, sizeof ignored, MSG_DONTWAIT);
      if (got <= 0) return got == 0 || errno != EAGAIN;
    }
  }

 private:
  std::string Hello() const {
    const std::unique_ptr<SSL, decltype(&SSL_free)> tls(SSL_new(context_.get()), SSL_free);
    BIO* out = BIO_new(BIO_s_mem());
    SSL_set_bio(tls.get(), BIO_new(BIO_s_mem()), out);
    SSL_connect(tls.get());
    char* data = nullptr;
    const long size = BIO_get_mem_data(out, &data);
    return std::string(data, static_cast<size_t>(size));
  }
  Descriptor socket_;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_{SSL_CTX_new(TLS_client_method()), SSL_CTX_free};
  std::unique_ptr<SSL, decltype(&SSL_free)> tls_{SSL_new(context_.get()), SSL_free};
  const std::string hello_ = Hello();
  size_t sent_ = 0;
};

// One byte in two seconds is enough for each read.
TEST_F(ServerTest, ASlowHeadEndsAndNothingElse) {
  api_.Create(kube::kTrainingJobs, "default", JobObject("job", 1), {});
  httplib::SSLClient kept("127.0.0.1", server_->port());
  kept.enable_server_certificate_verification(false);
  kept.set_keep_alive(true);
  const httplib::Headers headers = {{"Authorization", "Bearer secret"}};
  const std::string jobs = "/apis/trainyard.dev/v1alpha1/trainingjobs";
  ASSERT_TRUE(kept.Get(jobs, headers));
  std::atomic<bool> watched{false};
  std::jthread watcher([&] {
    httplib::SSLClient client("127.0.0.1", server_->port());
    client.enable_server_certificate_verification(false);
    client.set_read_timeout(30);
    const httplib::Result all = client.Get(jobs + "?watch=1&timeoutSeconds=14", headers);
    watched = all && all->body.find("\"ADDED\"") != std::string::npos;
  });
  SlowSender handshake(server_->port()), head(server_->port());
  ASSERT_TRUE(head.Handshake());
  const Instant start = SteadyNow();
  for (double passed = 0; !(handshake.IsClosed() && head.IsClosed()); passed = SecondsBetween(start, SteadyNow())) {
    if (passed > 25) {
      ADD_FAILURE() << "they live";
      break;
    }
    EXPECT_FALSE(passed < 8 && (handshake.IsClosed() || head.IsClosed())) << passed;
    handshake.SendByte();
    head.SendByte();
    std::this_thread::sleep_for(std::chrono::seconds(2));
  }
  const httplib::Result again = kept.Get(jobs, headers);
  EXPECT_TRUE(again && again->status == 200) << "a connection that was kept";
  watcher.join();
  EXPECT_TRUE(watched) << "an answer takes as long as it takes";
}

// A container makes such a log at no cost; nobody reads it to its end.
TEST_F(ServerTest, ALogWithoutAnEndHoldsUpNoStop) {
  log_ = std::filesystem::path(testing::TempDir()) / ("endless-" + std::to_string(getpid()));
  std::ofstream(log_) << "";
  std::filesystem::resize_file(log_, uint64_t{1} << 43);
  api_.Create(kube::kPods, "default",
              {{"apiVersion", "v1"},
               {"kind", "Pod"},
               {"metadata", {{"name", "p"}}},
               {"spec", {{"containers", nlohmann::json::array({{{"name", "c"}, {"image", "x"}}})}}}},
              {});
  std::atomic<size_t> bytes{0};
  std::jthread reader([&] {
    httplib::SSLClient client("127.0.0.1", server_->port());
    client.enable_server_certificate_verification(false);
    client.Get("/api/v1/namespaces/default/pods/p/log?tailLines=1000", {{"Authorization", "Bearer secret"}},
               [&](const char*, size_t size) {
                 bytes += size;
                 return SecondsBetween(start_, SteadyNow()) < 30;  // so that the test ends
               });
  });
  while (bytes == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  server_->Stop();
  EXPECT_LT(SecondsBetween(start_, SteadyNow()), 20);
  reader.join();
  std::filesystem::remove(log_);
}

TEST(Kubeconfig, ParsesServers) {
  kube::Endpoint endpoint;
  ASSERT_TRUE(kube::ParseServer("https://[fd00::1]:6443", endpoint).ok());
  EXPECT_EQ(endpoint.host, "fd00::1");
  EXPECT_EQ(endpoint.port, 6443);
  ASSERT_TRUE(kube::ParseServer("https://api.example/", endpoint).ok());
  EXPECT_EQ(endpoint.port, 443);
  for (const char* wrong :
       {"http://a:1", "https://a:x", "https://a:70000", "https://:1", "https://[fd00::1:1", "https://a/b"})
    EXPECT_FALSE(kube::ParseServer(wrong, endpoint).ok()) << wrong;
}

}  // namespace
}  // namespace trainyard

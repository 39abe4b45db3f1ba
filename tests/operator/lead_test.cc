#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "operator/kube/rest_client.h"
#include "tests/operator/tls_peer.h"

namespace trainyard::kube {
namespace {

// An operator that leads until it does not, before a server that counts what is written. A GET is answered once
// `answers` is true.
class LeadTest : public testing::Test {
 protected:
  void Serve(TlsStream& stream) {
    for (;;) {
      const std::string request = stream.ReadRequest();
      if (request.empty()) return;
      if (!request.starts_with("GET")) ++written_;
      ++asked_;
      while (request.starts_with("GET") && !answers_) std::this_thread::yield();
      if (!stream.Answer("{}")) return;
    }
  }

  SystemClock clock_;
  StopFlag stop_;
  std::atomic<bool> leads_{true}, answers_{true};
  std::atomic<int> asked_{0}, written_{0};
  TestCertificate authority_ = TestCertificate::Authority("authority");
  TestCertificate server_{"server", &authority_, nullptr, "IP:127.0.0.1"};
  TlsPeer peer_{server_, [this](TlsStream& stream) { Serve(stream); }};
  RestClient client_{EndpointOf(peer_.port(), authority_),
                     clock_,
                     stop_,
                     {.max_connections = 1, .request_seconds = 60, .may_write = [this] { return leads_.load(); }}};
};

TEST_F(LeadTest, NothingIsWrittenWithoutIt) {
  for (const Code wanted : {Code::kOk, Code::kStopped}) {
    leads_ = wanted == Code::kOk;
    EXPECT_EQ(client_.Create(kPods, "", {}, {}).status().code(), wanted);
    EXPECT_EQ(client_.MergePatch(kPods, "", "a", "", {}, {}).status().code(), wanted);
    EXPECT_EQ(client_.Delete(kPods, "", "a", {}).code(), wanted);
    EXPECT_TRUE(client_.Get(kPods, "", "a").ok()) << "a read does no harm";
  }
  EXPECT_EQ(written_, 3);
  EXPECT_EQ(peer_.connections(), 1) << "the connection of what was not sent is as good as new";
}

// A server that hangs may keep a write waiting for longer than a lease lasts.
TEST_F(LeadTest, MayBeLostWhileAWriteWaitsForAConnection) {
  answers_ = false;
  std::future<Result<Json>> read = std::async(std::launch::async, [&] { return client_.Get(kPods, "", "a"); });
  while (asked_ == 0) std::this_thread::yield();
  std::atomic<bool> begins{false};
  std::future<Result<Json>> write = std::async(std::launch::async, [&] {
    begins = true;
    return client_.Create(kPods, "", {{"a", 1}}, {});
  });
  while (!begins) std::this_thread::yield();
  // In which it gets as far as it can. One that was asked about before its wait would be written, and seen.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  leads_ = false;
  answers_ = true;
  EXPECT_TRUE(read.get().ok());
  EXPECT_TRUE(write.get().status().Is(Code::kStopped));
  EXPECT_EQ(written_, 0);
}

}  // namespace
}  // namespace trainyard::kube

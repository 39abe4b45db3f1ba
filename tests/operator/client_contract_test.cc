// What a client of Kubernetes has to do, where no other test says it (docs/testing.md, "The client, line by line").
#include <gtest/gtest.h>

#include <set>

#include "operator/kube/events.h"
#include "operator/kube/limited_client.h"
#include "operator/kube/store.h"
#include "tests/operator/scripted_client.h"

namespace trainyard::kube {
namespace {

// Remembers what was asked for.
class Recording : public ScriptedClient {
 public:
  using ScriptedClient::ScriptedClient;
  Status Watch(const Resource& resource, const std::string& ns, const WatchOptions& options,
               const std::function<bool(WatchEvent)>& on_event, const StopFlag& stop) override {
    if (!options.initial_events) timeouts.push_back(options.timeout_seconds);
    return ScriptedClient::Watch(resource, ns, options, on_event, stop);
  }
  Result<Json> Create(const Resource&, const std::string&, const Json& object, const WriteOptions&) override {
    created.push_back(object);
    return refusal.ok() ? Result<Json>(object) : Result<Json>(refusal);
  }
  Result<Json> MergePatch(const Resource&, const std::string&, const std::string& name, const std::string&,
                          const Json& patch, const WriteOptions&) override {
    patched.emplace_back(name, patch);
    return patch;
  }
  std::vector<int> timeouts;
  std::vector<Json> created;
  std::vector<std::pair<std::string, Json>> patched;
  Status refusal;
};

class ClientContract : public testing::Test {
 protected:
  using Names = Store<std::string>;
  double Pump() { return reflector_.Pump(stop_); }
  static WatchEvent Error(int code) {
    return {"ERROR", {{"kind", "Status"}, {"code", code}, {"message", "an error of the stream"}}};
  }
  TurnedClock clock_;
  StopFlag stop_;
  Recording client_{clock_};
  std::vector<std::string> heard_;
  Names store_{[](const Json& object) { return object["metadata"]["uid"].get<std::string>(); },
               [](const std::string&) { return std::string(); },
               [this](const std::string& key) { heard_.push_back(key); }};
  Reflector reflector_{client_, clock_, kPods, {}, store_};
};

TEST_F(ClientContract, AWatchAsksForFiveToTenMinutesEachTimeAnother) {
  for (int i = 0; i < 50; ++i) client_.watches.push_back({{}, 400, Status::Ok()});
  for (int i = 0; i < 50; ++i) EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(client_.list_versions.size(), 1u) << "an end in time needs no list";
  for (const int seconds : client_.timeouts) EXPECT_TRUE(seconds >= 300 && seconds <= 600) << seconds;
  EXPECT_GT(std::set<int>(client_.timeouts.begin(), client_.timeouts.end()).size(), 20u);
}

TEST_F(ClientContract, AnErrorEventIsJudgedByItsCode) {
  client_.lists = {ListAt(5)};
  client_.watches = {{{Error(429)}, 0, Status::Ok()}, {{Error(500)}, 0, Status::Ok()}};
  EXPECT_GT(Pump(), 0) << "429 waits";
  EXPECT_GT(Pump(), 0) << "so does 500";
  EXPECT_EQ(client_.watch_versions, (std::vector<std::string>{"5", "5"})) << "from the same place";
  EXPECT_EQ(client_.list_versions.size(), 1u);
  clock_.Pass(61);
  client_.watches = {{{Error(500)}, 0, Status::Ok()}};
  EXPECT_GT(Pump(), 0);
  Pump();
  EXPECT_EQ(client_.list_versions.size(), 2u) << "a minute of 500 lists";
  client_.watches = {{{Error(400)}, 0, Status::Ok()}};
  Pump();
  Pump();
  EXPECT_EQ(client_.list_versions.size(), 3u) << "anything else lists";
}

TEST_F(ClientContract, ARelistTellsOfWhatIsGoneAndOfWhatCameInItsPlace) {
  Json second = ListAt(9, {"same", "other"});
  second["items"][1]["metadata"]["uid"] = "another";
  client_.lists = {ListAt(5, {"gone", "same", "other"}), second};
  client_.watches = {{{Error(410)}, 0, Status::Ok()}};
  Pump();
  heard_.clear();
  Pump();
  const std::set<std::string> heard(heard_.begin(), heard_.end());
  EXPECT_TRUE(heard.contains("default/gone"));
  EXPECT_TRUE(heard.contains("default/other")) << "deleted and created again between two lists";
  EXPECT_EQ(store_.Get("default/gone"), nullptr);
  EXPECT_EQ(*store_.Get("default/other"), "another");
}

TEST_F(ClientContract, APageThatIsGoneBeginsOneWholeListAndMixesNothing) {
  Json first = ListAt(5, {"old"});
  first["metadata"]["continue"] = "page-2";
  client_.lists = {first, Status(Code::kGone, "the token has run out"), ListAt(8, {"new"})};
  client_.watches = {{{}, 400, Status::Ok()}};
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(client_.continue_tokens, (std::vector<std::string>{"", "page-2", ""}));
  EXPECT_EQ(store_.Keys(), std::vector<std::string>{"default/new"}) << "nothing of the first page is left";
  EXPECT_EQ(client_.watch_versions, std::vector<std::string>{"8"});
}

TEST_F(ClientContract, PagesOfOneSnapshotAreOneList) {
  Json first = ListAt(5, {"a"});
  first["metadata"]["continue"] = "page-2";
  client_.lists = {first, ListAt(5, {"b"})};
  Pump();
  EXPECT_EQ(store_.Keys(), (std::vector<std::string>{"default/a", "default/b"}));
}

TEST_F(ClientContract, AnUnknownKindOfEventIsPassedOver) {
  client_.lists = {ListAt(5)};
  client_.watches = {{{{"NEWS", ObjectAt("a", 6)}, {"ADDED", ObjectAt("b", 7)}}, 400, Status::Ok()}};
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(store_.Keys(), std::vector<std::string>{"default/b"});
}

// A start-up's list of thousands does not stand before what happens meanwhile.
TEST_F(ClientContract, WhatAListBringsIsToldApartFromWhatHappens) {
  std::vector<std::string> listed, changed;
  Store<std::string> store([](const Json& object) { return object["metadata"]["uid"].get<std::string>(); },
                           [](const std::string&) { return std::string(); },
                           [&](const std::string& key) { changed.push_back(key); }, {},
                           [&](const std::string& key) { listed.push_back(key); });
  Reflector reflector(client_, clock_, kPods, {}, store);
  client_.lists = {ListAt(5, {"a", "b"})};
  client_.watches = {{{{"MODIFIED", ObjectAt("b", 6)}, {"DELETED", ObjectAt("a", 7)}}, 400, Status::Ok()}};
  reflector.Pump(stop_);
  EXPECT_EQ(listed, (std::vector<std::string>{"default/a", "default/b"}));
  EXPECT_EQ(changed, (std::vector<std::string>{"default/b", "default/a"}));
}

TEST_F(ClientContract, AWatchTakesATokenLikeEveryRequest) {
  TokenBucket bucket(1000, 2000, clock_);
  LimitedClient limited(client_, bucket, stop_);
  (void)limited.Watch(
      kPods, "", {}, [](const WatchEvent&) { return true; }, stop_);
  EXPECT_EQ(bucket.counters().taken, 1);
}

class Events : public testing::Test {
 protected:
  Status Record(const std::string& uid, const std::string& note) {
    return recorder_.Record({"trainyard.dev/v1alpha1", "TrainingJob", "default", "job", uid}, "Warning", "Restarting",
                            note);
  }
  TurnedClock clock_;
  Recording client_{clock_};
  EventRecorder recorder_{client_, clock_, "test"};
};

TEST_F(Events, TheSameOneAgainIsASeries) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Record("u", "it broke").ok());
    clock_.Pass(60);
  }
  ASSERT_EQ(client_.created.size(), 1u);
  ASSERT_EQ(client_.patched.size(), 2u);
  EXPECT_EQ(client_.patched.back().first, client_.created[0]["metadata"]["name"]);
  EXPECT_EQ(client_.patched.back().second["series"]["count"], 3);
  EXPECT_TRUE(Record("another", "it broke").ok());
  EXPECT_EQ(client_.created.size(), 2u) << "of another object";
  clock_.Pass(361);
  EXPECT_TRUE(Record("u", "it broke").ok());
  EXPECT_EQ(client_.created.size(), 3u) << "after six minutes a new one";
}

TEST_F(Events, OneThatWasRefusedBeginsAnew) {
  client_.refusal = Status(Code::kForbidden, "no");
  EXPECT_TRUE(Record("u", "it broke").Is(Code::kForbidden));
  client_.refusal = Status::Ok();
  EXPECT_TRUE(Record("u", "it broke").ok());
  EXPECT_TRUE(client_.patched.empty()) << "the server has nothing to patch";
}

// One that fails again and again in other words each time; what others tell of goes on.
TEST_F(Events, EachObjectHasItsOwnBucket) {
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(Record("u", "failure " + std::to_string(i)).Is(Code::kThrottled), i >= 25) << i;
    clock_.Pass(0.1);
  }
  EXPECT_EQ(client_.created.size(), 25u);
  const ObjectReference u{"trainyard.dev/v1alpha1", "TrainingJob", "default", "job", "u"};
  EXPECT_TRUE(recorder_.Record(u, "Warning", "Failed", "MaxRestarts: it broke").ok()) << "how a crash loop ended";
  EXPECT_TRUE(Record("another", "it broke").ok());
  clock_.Pass(300);
  clock_.Pass(300);
  EXPECT_TRUE(Record("u", "after five minutes").ok());
  EXPECT_TRUE(Record("u", "at once again").Is(Code::kThrottled));
  clock_.Pass(1e6);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(Record("u", "burst " + std::to_string(i)).ok(), i < 25) << i;
}

TEST_F(Events, WhatIsToldAgainTakesATokenToo) {
  for (int i = 0; i < 100; ++i) (void)Record("u", "it broke");
  EXPECT_EQ(client_.created.size() + client_.patched.size(), 25u);
}

TEST_F(Events, ObjectsWithoutEndCostNoMemoryWithoutEnd) {
  for (int i = 0; i < 25; ++i) EXPECT_TRUE(Record("first", std::to_string(i)).ok());
  EXPECT_TRUE(Record("first", "0").Is(Code::kThrottled));
  for (int i = 0; i < 17000; ++i) EXPECT_TRUE(Record("u" + std::to_string(i), "it broke").ok());
  // What it has had, and what of it was told, are forgotten.
  const size_t created = client_.created.size();
  EXPECT_TRUE(Record("first", "0").ok());
  EXPECT_EQ(client_.created.size(), created + 1);
}

TEST_F(Events, ANoteIsCutToWhatTheApiTakes) {
  EXPECT_TRUE(Record("u", std::string(5000, 'x')).ok());
  EXPECT_LE(client_.created[0]["note"].get<std::string>().size(), 1024u);
}

// kube-apiserver's words when several creations want to count themselves in one quota.
TEST(StatusFromApi, AQuotaThatManyWriteIsToBeAskedAgain) {
  const auto answer = [](const char* kind, const char* reason) {
    return StatusFromApi(409, {{"kind", "Status"},
                               {"reason", reason},
                               {"message", "Operation cannot be fulfilled on " + std::string(kind) + " \"a\""},
                               {"details", {{"name", "a"}, {"kind", kind}}}});
  };
  const Status quota = answer("resourcequotas", "Conflict");
  EXPECT_TRUE(quota.Is(Code::kThrottled));
  EXPECT_GT(quota.retry_after_seconds().value_or(0), 0);
  EXPECT_TRUE(answer("pods", "Conflict").Is(Code::kConflict)) << "our copy is old";
  EXPECT_TRUE(answer("pods", "AlreadyExists").Is(Code::kAlreadyExists));
}

}  // namespace
}  // namespace trainyard::kube

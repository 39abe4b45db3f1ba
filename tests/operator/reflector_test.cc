#include "operator/kube/reflector.h"

#include <gtest/gtest.h>

#include "operator/kube/store.h"
#include "tests/operator/scripted_client.h"

namespace trainyard::kube {
namespace {

const Status kCut(Code::kUnavailable, "read: the connection broke");

class ReflectorTest : public testing::Test {
 protected:
  using Names = Store<std::string>;
  using Watched = ScriptedClient::Watched;
  ReflectorTest() { client_.lists.push_back(ListAt(5, {"a"})); }
  double Pump() { return reflector_.Pump(stop_); }
  static WatchEvent Added(const std::string& name, int version) { return {"ADDED", ObjectAt(name, version)}; }
  static WatchEvent Bookmark(int version) {
    return {"BOOKMARK", {{"metadata", {{"resourceVersion", std::to_string(version)}}}}};
  }
  static WatchEvent InitialEnd(int version) {
    WatchEvent bookmark = Bookmark(version);
    bookmark.object["metadata"]["annotations"] = {{kInitialEventsEnd, "true"}};
    return bookmark;
  }

  TurnedClock clock_;
  StopFlag stop_;
  ScriptedClient client_{clock_};
  std::vector<std::string> heard_;
  Names store_{
      [](const Json& object) {
        if (object.value("/metadata/name"_json_pointer, "") == "poison") throw std::runtime_error("poison");
        return object.value("/metadata/name"_json_pointer, "");
      },
      [](const std::string&) { return std::string(); }, [this](const std::string& key) { heard_.push_back(key); },
      [this](const std::string& key, const std::string& why) { heard_.push_back("skipped " + key + ": " + why); }};
  Reflector reflector_{client_, clock_, kPods, {}, store_};
};

TEST_F(ReflectorTest, TheFirstListAsksForZeroAndTheWatchGoesOnFromIt) {
  client_.watches = {{{Added("b", 6), Bookmark(9)}, 400, Status::Ok()}, {{}, 400, Status::Ok()}};
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(client_.list_versions, std::vector<std::string>{"0"});
  EXPECT_EQ(client_.watch_versions, (std::vector<std::string>{"5", "9"})) << "events and bookmarks advance it";
  EXPECT_EQ(store_.size(), 2u);
}

// A load balancer that cuts every watch after 50 s, for hours.
TEST_F(ReflectorTest, AWatchThatLivedIsHealthyHoweverItEnded) {
  for (int i = 0; i < 100; ++i) client_.watches.push_back({{Added("b", 6 + i)}, 50, kCut});
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Pump(), 0) << i;
    EXPECT_FALSE(reflector_.trouble()) << i;
  }
  EXPECT_EQ(client_.list_versions.size(), 1u) << "no list again";
  EXPECT_EQ(client_.watch_versions.back(), "104");
}

TEST_F(ReflectorTest, ASilentWatchIsHealthyAfterTenSeconds) {
  for (int i = 0; i < 20; ++i) client_.watches.push_back({{}, 30, kCut});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Pump(), 0) << i;
  EXPECT_EQ(client_.list_versions.size(), 1u);
}

TEST_F(ReflectorTest, ShortWatchesBackOffAndALongOneForgetsIt) {
  for (int i = 0; i < 8; ++i) client_.watches.push_back({{}, 0.1, Status::Ok()});
  double wait = 0;
  for (int i = 0; i < 8; ++i) {
    wait = Pump();
    EXPECT_GE(wait, std::min(0.8 * (1 << i), 30.0) / 2) << i;
    EXPECT_LE(wait, std::min(0.8 * (1 << i), 30.0)) << i;
  }
  EXPECT_GE(wait, 15);
  client_.watches = {{{}, 60, kCut}, {{}, 0, kCut}};
  EXPECT_EQ(Pump(), 0);
  EXPECT_LE(Pump(), 0.8) << "from the beginning";
}

// What never was accepted has not lived, however long it took.
TEST_F(ReflectorTest, AnUnreachableServerIsNoHealth) {
  client_.watches.push_back({{}, 65, Status(Code::kDeadline, "no answer"), /*accepted=*/false});
  EXPECT_GT(Pump(), 0);
  ASSERT_TRUE(reflector_.trouble());
  EXPECT_TRUE(reflector_.trouble()->status.Is(Code::kDeadline));
}

TEST_F(ReflectorTest, RefusedAndThrottledKeepThePlace) {
  const Status refused(Code::kUnavailable, "connect: Connection refused"), throttled(Code::kThrottled, "later");
  client_.watches = {{{}, 0, refused, false}, {{}, 0, throttled, false}, {{}, 400, Status::Ok()}};
  EXPECT_GT(Pump(), 0);
  EXPECT_GT(Pump(), 0);
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(client_.list_versions.size(), 1u);
}

TEST_F(ReflectorTest, AServerMayNotAskToBeLeftAloneForHours) {
  for (const double seconds : {1e9, 31.0}) {
    const Status later = Status(Code::kThrottled, "later").set_retry_after_seconds(seconds);
    client_.watches = {{{}, 0, later, false}};
    EXPECT_EQ(Pump(), 30) << seconds;
  }
}

TEST_F(ReflectorTest, GoneListsAgainFromTheNewestSeen) {
  client_.lists.push_back(Status(Code::kGone, "too old"));
  client_.lists.push_back(ListAt(70, {"b"}));
  client_.watches = {{{Bookmark(60)}, 300, Status::Ok()},
                     {{{"ERROR", {{"kind", "Status"}, {"code", 410}, {"message", "too old"}}}}, 0, Status::Ok()},
                     {{}, 300, Status::Ok()}};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Pump(), 0) << i;
  EXPECT_EQ(client_.list_versions, (std::vector<std::string>{"0", "60", ""}));
  EXPECT_EQ(client_.watch_versions.back(), "70");
  EXPECT_EQ(store_.Keys(), std::vector<std::string>{"default/b"}) << "a relist takes away what is gone";
  EXPECT_EQ(reflector_.rewinds(), 0);
}

// etcd restored from a backup: the server's newest version is far behind what we have seen.
TEST_F(ReflectorTest, AVersionThatTheServerDoesNotReachListsWhatThereIsAtOnce) {
  const Status too_large = StatusFromApi(504, TooLarge());
  ASSERT_TRUE(too_large.Is(Code::kAhead)) << too_large.ToString();
  client_.lists = {ListAt(900, {"a"}), ListAt(5, {"old"})};
  const Watched silent = {{}, 300, Status::Ok()};
  client_.watches = {{{}, 30, kCut}, silent, silent};
  client_.reaches = {too_large};
  EXPECT_EQ(Pump(), 0);
  const Instant cut = clock_.Steady();
  EXPECT_EQ(Pump(), 0) << "without a wait";
  EXPECT_EQ(SecondsBetween(cut, clock_.Steady()), 2) << "it was accepted, and would have been silent for ever";
  ASSERT_TRUE(reflector_.trouble());
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(client_.reach_versions, std::vector<std::string>{"900"});
  EXPECT_EQ(client_.list_versions, (std::vector<std::string>{"0", ""}));
  EXPECT_EQ(client_.watch_versions, (std::vector<std::string>{"900", "900", "5"}));
  EXPECT_EQ(reflector_.rewinds(), 1);
  EXPECT_FALSE(reflector_.trouble());
}

// Whoever ends it, and however: a server that goes ends it as it should.
TEST_F(ReflectorTest, BehindAWatchThatDidNotEndInItsTimeTheServerIsAskedHowFarItHasCome) {
  const Status refused(Code::kUnavailable, "connect: Connection refused");
  client_.watches = {{{}, 600, Status::Ok()},
                     {{}, 30, Status::Ok()},
                     {{}, 30, Status::Ok()},
                     {{}, 0, refused, false},
                     {{}, 600, Status::Ok()}};
  client_.reaches = {Status::Ok(), refused};
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(Pump(), 0);
  EXPECT_TRUE(client_.reach_versions.empty()) << "the first had its time";
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(client_.reach_versions.size(), 1u) << "in the next, which was silent";
  EXPECT_GT(Pump(), 0);
  EXPECT_GT(Pump(), 0) << "nobody answers yet";
  EXPECT_EQ(client_.watch_versions.size(), 4u);
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(client_.watch_versions.size(), 5u);
  EXPECT_EQ(client_.reach_versions.size(), 3u);
  EXPECT_EQ(client_.list_versions.size(), 1u);
}

// A server cuts a watch of which it has more events than room; they come at the begin of the next.
TEST_F(ReflectorTest, AWatchThatWasCutAndGoesOnAsksNothing) {
  for (int i = 0; i < 5; ++i) client_.watches.push_back({{Added("b", 6 + i)}, i < 4 ? 1 : 0.1, Status::Ok()});
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Pump(), 0) << i;
  Pump();
  EXPECT_EQ(client_.watch_versions, (std::vector<std::string>{"5", "6", "7", "8", "9", "10"}));
  EXPECT_TRUE(client_.reach_versions.empty());
}

TEST_F(ReflectorTest, AWatchThatHadItsTimeIsInNoDoubtForAQuestionThatTookLong) {
  const Watched in_time = {{}, 302, Status::Ok()};  // with the question more than any asks for
  client_.watches = {{{}, 30, kCut}, in_time, in_time};
  client_.reach_seconds = 300;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Pump(), 0) << i;
  EXPECT_EQ(client_.reach_versions.size(), 1u);
}

// It has lived for more than a minute then, and done nothing.
TEST_F(ReflectorTest, AWatchWhoseQuestionFailedIsNotHealthy) {
  client_.watches = {{{}, 30, kCut}, {{}, 300, Status::Ok()}};
  client_.reaches = {kCut, kCut};
  client_.reach_seconds = 65;
  EXPECT_EQ(Pump(), 0);
  EXPECT_GT(Pump(), 0);
  ASSERT_TRUE(reflector_.trouble());
  const Instant since = reflector_.trouble()->since;
  EXPECT_GT(Pump(), 0) << "the question comes first now";
  ASSERT_TRUE(reflector_.trouble());
  EXPECT_EQ(reflector_.trouble()->since, since);
  EXPECT_EQ(client_.watch_versions.size(), 2u);
}

// As by a server that goes; whoever comes in its place may be another.
TEST_F(ReflectorTest, BehindAWatchThatWasNotHealthyItAsksBeforeTheNext) {
  client_.watches = {{{}, 0.5, Status::Ok()}, {{Added("b", 6)}, 600, Status::Ok()}};
  EXPECT_GT(Pump(), 0);
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(client_.reach_versions, std::vector<std::string>{"5"});
}

TEST_F(ReflectorTest, AStreamThatBeganWithWhatThereIsIsNoOtherWatch) {
  client_.streams = true;
  client_.watches = {{{Added("a", 900), InitialEnd(900)}, 30, kCut}, {{}, 600, Status::Ok()}};
  client_.reaches = {StatusFromApi(504, TooLarge())};
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(client_.reach_versions, std::vector<std::string>{"900"});
}

TEST_F(ReflectorTest, AListThatAsksForTooMuchAsksForWhatThereIs) {
  client_.lists = {ListAt(900), StatusFromApi(504, TooLarge()), ListAt(5)};
  client_.watches = {{{}, 0, Status(Code::kGone, "too old"), false}, {{}, 300, Status::Ok()}};
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(client_.list_versions, (std::vector<std::string>{"0", "900", ""}));
  EXPECT_EQ(reflector_.rewinds(), 1);
}

TEST_F(ReflectorTest, AMissingRightIsToldUntilAWatchLives) {
  const Status forbidden(Code::kForbidden, "pods is forbidden");
  client_.lists = {forbidden, forbidden, ListAt(5)};
  client_.watches = {{{}, 0, forbidden, false}, {{}, 60, Status::Ok()}};
  client_.lists.push_back(ListAt(6));
  EXPECT_GT(Pump(), 0);
  const Instant since = reflector_.trouble()->since;
  clock_.Pass(10);
  EXPECT_GT(Pump(), 0);
  EXPECT_FALSE(reflector_.synced());
  EXPECT_GT(Pump(), 0) << "the list works, the watch does not";
  ASSERT_TRUE(reflector_.trouble());
  EXPECT_EQ(reflector_.trouble()->since, since);
  Pump();
  EXPECT_FALSE(reflector_.trouble());
}

// Of three objects one that a defect of ours stumbles over, in a list and in a watch.
TEST_F(ReflectorTest, AnObjectThatCannotBeReadIsSkipped) {
  client_.lists = {ListAt(5, {"a", "poison", "b"})};
  client_.watches = {{{Added("poison", 6), Added("c", 7)}, 20, Status::Ok()}};
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(store_.Keys(), (std::vector<std::string>{"default/a", "default/b", "default/c"}));
  EXPECT_EQ(store_.skips(), 2);
  EXPECT_EQ(std::count(heard_.begin(), heard_.end(), "skipped default/poison: poison"), 2);
  EXPECT_EQ(std::count(heard_.begin(), heard_.end(), ""), 0);
}

// client-go's watch list: the stream begins with what there is, and goes on.
TEST_F(ReflectorTest, WhereTheServerOffersItWhatThereIsComesInTheStream) {
  client_.streams = true;
  client_.watches = {{{Added("a", 3),
                       Added("b", 4),
                       Bookmark(4),
                       {"MODIFIED", ObjectAt("a", 6)},
                       {"DELETED", ObjectAt("b", 7)},
                       InitialEnd(8),
                       Added("c", 9)},
                      400,
                      Status::Ok()},
                     {{}, 400, Status::Ok()}};
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(store_.Keys(), (std::vector<std::string>{"default/a", "default/c"}));
  EXPECT_TRUE(reflector_.synced());
  EXPECT_EQ(Pump(), 0);
  EXPECT_TRUE(client_.list_versions.empty());
  EXPECT_EQ(client_.stream_versions, std::vector<std::string>{"0"});
  EXPECT_EQ(client_.watch_versions, std::vector<std::string>{"9"}) << "an ordinary watch goes on from it";
}

TEST_F(ReflectorTest, AnUnfinishedStreamChangesNothingAndAListFollows) {
  client_.streams = true;
  client_.lists = {ListAt(20, {"new"})};
  client_.watches = {{{Added("a", 3), InitialEnd(5)}, 400, Status::Ok()},
                     {{{"ERROR", {{"code", 410}}}}, 0, Status::Ok()},
                     {{Added("half", 9)}, 0, kCut},
                     {{}, 400, Status::Ok()}};
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(Pump(), 0) << "410: from the beginning";
  EXPECT_GT(Pump(), 0) << "cut in the middle";
  EXPECT_EQ(store_.Keys(), std::vector<std::string>{"default/a"});
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(store_.Keys(), std::vector<std::string>{"default/new"});
  EXPECT_EQ(client_.stream_versions, (std::vector<std::string>{"0", "5"}));
  EXPECT_EQ(client_.list_versions, std::vector<std::string>{"5"});
}

TEST_F(ReflectorTest, AServerThatRefusesStreamsIsAskedOnce) {
  client_.watches = {{{{"ERROR", {{"code", 410}}}}, 0, Status::Ok()}, {{}, 400, Status::Ok()}};
  EXPECT_EQ(Pump(), 0);
  client_.streams = true;
  client_.lists = {ListAt(9)};
  EXPECT_EQ(Pump(), 0);
  EXPECT_TRUE(client_.stream_versions.empty());
  EXPECT_EQ(client_.list_versions.size(), 2u);
}

TEST_F(ReflectorTest, AListComesInPages) {
  client_.lists = {PageAt(5, {"a", "b"}, "next"), PageAt(5, {"c"}, "last"), ListAt(5, {"d"})};
  client_.watches = {{{}, 400, Status::Ok()}};
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(store_.size(), 4u);
  EXPECT_EQ(client_.list_versions, (std::vector<std::string>{"0", "", ""})) << "the token holds the version";
  EXPECT_EQ(client_.continue_tokens, (std::vector<std::string>{"", "next", "last"}));
}

// The second page is gone: the first one's "a" may be, too.
TEST_F(ReflectorTest, TheSamePageForEverIsAnError) {
  client_.lists = {PageAt(5, {"a"}, "next"), PageAt(5, {"b"}, "next"), PageAt(5, {"b"}, "next"), ListAt(5, {"c"})};
  reflector_.Pump(stop_);
  EXPECT_EQ(client_.continue_tokens, (std::vector<std::string>{"", "next"}));
  EXPECT_FALSE(reflector_.synced());
  ASSERT_TRUE(reflector_.trouble());
  EXPECT_NE(reflector_.trouble()->status.message().find("the same page"), std::string::npos);
}

TEST_F(ReflectorTest, APageThatIsGoneBeginsOneListAnewAndNeverAMix) {
  client_.lists = {PageAt(5, {"a", "b"}, "next"), Status(Code::kGone, "the token has expired"), ListAt(80, {"b", "c"})};
  client_.watches = {{{}, 400, Status::Ok()}};
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(store_.Keys(), (std::vector<std::string>{"default/b", "default/c"}));
  EXPECT_EQ(client_.list_versions, (std::vector<std::string>{"0", "", ""}));
  EXPECT_EQ(client_.continue_tokens, (std::vector<std::string>{"", "next", ""}));
  EXPECT_EQ(client_.watch_versions.back(), "80");
}

TEST_F(ReflectorTest, AListThatEndsInTheMiddleLeavesWhatWasThere) {
  client_.lists = {ListAt(5, {"a"}), PageAt(9, {"b"}, "next"), kCut, ListAt(11, {"c"})};
  client_.watches = {{{{"ERROR", {{"code", 410}}}}, 0, Status::Ok()}, {{}, 400, Status::Ok()}};
  EXPECT_EQ(Pump(), 0);
  EXPECT_GT(Pump(), 0);
  EXPECT_EQ(store_.Keys(), std::vector<std::string>{"default/a"});
  EXPECT_EQ(Pump(), 0);
  EXPECT_EQ(store_.Keys(), std::vector<std::string>{"default/c"});
}

TEST_F(ReflectorTest, AnAnswerThatIsNoListIsAFailure) {
  client_.lists = {Json{{"metadata", {{"resourceVersion", ""}}}, {"items", Json::array()}}};
  EXPECT_GT(Pump(), 0);
  EXPECT_FALSE(reflector_.synced());
}

}  // namespace
}  // namespace trainyard::kube

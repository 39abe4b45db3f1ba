#include "trainer/metrics/json_lines.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/base/text.h"
#include "trainer/metrics/append_file.h"

namespace trainyard {
namespace {

class JsonLinesTest : public testing::Test {
 protected:
  JsonLinesTest() : directory_(fs::path(testing::TempDir()) / ("json-lines-" + std::to_string(getpid()))) {
    fs::create_directories(directory_);
  }
  ~JsonLinesTest() override { fs::remove_all(directory_); }

  std::vector<nlohmann::json> Lines() const {
    std::vector<nlohmann::json> lines;
    for (const std::string& line : Split(ReadFile(directory_ / "log.jsonl"), '\n')) {
      if (!line.empty()) lines.push_back(nlohmann::json::parse(line));
    }
    return lines;
  }

  // Steps, each with its line, and an evaluation after every second one.
  void Attempt(int64_t number, int64_t first, int64_t last, bool repeats_evaluation) {
    const auto sink = OpenJsonLines({directory_, first, repeats_evaluation});
    auto write = [&](int64_t step, EventContent content) {
      sink->Write({.attempt = number, .step = step, .content = std::move(content)});
    };
    if (repeats_evaluation) write(first, Scalars{{"test/loss", 2}});
    for (int64_t step = first + 1; step <= last; ++step) {
      write(step, Scalars{{"train/loss", 1}});
      if (step % 2 == 0) write(step, Scalars{{"test/loss", 2}});
    }
  }

  void ExpectEachOnce(int64_t last) const {
    std::map<int64_t, int> steps, evaluations;
    for (const auto& line : Lines()) ++(line.contains("train/loss") ? steps : evaluations)[line["step"].get<int64_t>()];
    for (int64_t step = 1; step <= last; ++step) {
      EXPECT_EQ(steps[step], 1) << "step " << step;
      EXPECT_EQ(evaluations[step], step % 2 == 0 ? 1 : 0) << "evaluation after step " << step;
    }
  }

  fs::path directory_;
};

TEST_F(JsonLinesTest, ALineForEveryKindOfEvent) {
  const auto sink = OpenJsonLines({directory_});
  auto write = [&](EventContent content) {
    sink->Write({.attempt = 2, .step = 7, .time = 1.5, .content = std::move(content)});
  };
  write(Scalars{{"train/loss", 0.1}, {"a\"b", NAN}});
  write(Curve{"curve/c", {1, 2}, {0.5, INFINITY}});
  write(Text{"table", "a\nb\xff"});
  write(HistogramOf("h", std::vector<double>{1, 2, 4, NAN}, 3));
  write(Image{"val/../grid", 1, 2, 1, {0, 255}});
  write(HParams{{{"lr", 1.0}}});
  write(RunComplete{});
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(ReadFile(directory_ / "log.jsonl").substr(0, 66),
            "{\"time\":1.500,\"attempt\":2,\"step\":7,\"train/loss\":0.100000001,\"a\\\"b\"");
  EXPECT_EQ(lines[0]["a\"b"], "nan");
  EXPECT_EQ(lines[1]["curve"], "curve/c");
  EXPECT_EQ(lines[1]["y"], nlohmann::json::parse("[0.5,\"inf\"]"));
  EXPECT_EQ(lines[2]["value"], "a\nb\xef\xbf\xbd");
  EXPECT_EQ(lines[3]["limits"], nlohmann::json::parse("[2,3,4]"));
  EXPECT_EQ(lines[3]["counts"], nlohmann::json::parse("[2,0,1]"));
  EXPECT_EQ(lines[3]["count"], 3);
  EXPECT_EQ(lines[4]["file"], "images/val____grid-step-00000007.png");
  EXPECT_TRUE(fs::exists(directory_ / lines[4]["file"].get<std::string>()));
}

TEST_F(JsonLinesTest, EachStepAndEvaluationStandsOnceWhereverARunIsInterrupted) {
  for (int64_t resumed = 0; resumed <= 9; ++resumed) {
    for (const bool pending : {false, true}) {
      SCOPED_TRACE(Format("resumed after step %d, evaluation %s", static_cast<int>(resumed), pending ? "pending" : ""));
      fs::remove(directory_ / "log.jsonl");
      const bool repeats = pending && resumed > 0 && resumed % 2 == 0;
      Attempt(1, 0, 9, false);
      Attempt(2, resumed, 9, repeats);
      ExpectEachOnce(9);
      Attempt(3, resumed, 10, repeats);
      ExpectEachOnce(10);
    }
  }
}

TEST_F(JsonLinesTest, ALineThatIsNotWholeGoes) {
  Attempt(1, 0, 3, false);
  for (const std::string torn : {"{\"step\":3", "{\"step\":3}", "\0\0\0\n", "{\"step\":\"x\"}\n", "[]\n"}) {
    const std::string whole = ReadFile(directory_ / "log.jsonl");
    WriteFileAtomic(directory_ / "log.jsonl", whole + torn);
    OpenJsonLines({directory_, 3});
    EXPECT_EQ(ReadFile(directory_ / "log.jsonl"), whole) << torn;
  }
}

// A full disk, played by the limit on a file's size.
TEST_F(JsonLinesTest, APieceThatDoesNotFitLeavesNothing) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  AppendFile file(directory_ / "file");
  file.Append("12345\n");
  const rlimit small{10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string problem;
  try {
    file.Append("6789012\n");
  } catch (const StorageError& error) {
    problem = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(problem, "cannot write " + (directory_ / "file").string() + ": File too large");
  file.Append("next\n");
  EXPECT_EQ(ReadFile(directory_ / "file"), "12345\nnext\n");
}

}  // namespace
}  // namespace trainyard

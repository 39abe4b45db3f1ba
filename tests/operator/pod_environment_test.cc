// What a container is given on one machine, out of values that anyone may have written.
#include "operator/local/node/pod_environment.h"

#include <gtest/gtest.h>

namespace trainyard::local {
namespace {

class ReplaceNamesTest : public testing::Test {
 protected:
  // Knows job-1-0 and job-1-1 of job in default, and one service.
  std::string Replaced(std::string value) {
    missing_ =
        ReplaceNames(value, {.host = [this](const std::string& pod, const std::string& subdomain,
                                            const std::string& ns) -> std::optional<std::string> {
                               ++asked_;
                               if (subdomain != "job" || ns != "default") return std::nullopt;
                               if (pod == "job-1-0") return "127.7.0.1";
                               return pod == "job-1-1" ? std::optional<std::string>("127.7.0.2") : std::nullopt;
                             },
                             .service = [this](const std::string& address) -> std::optional<std::string> {
                               ++asked_;
                               return address == "127.255.3.4" ? std::optional<std::string>("127.7.0.1") : std::nullopt;
                             }});
    return value;
  }
  std::string missing_;
  int asked_ = 0;
};

TEST_F(ReplaceNamesTest, NamesAndAddressesWhereverTheyStand) {
  EXPECT_EQ(Replaced("job-1-0.job.default.svc"), "127.7.0.1");
  EXPECT_EQ(Replaced("job-1-0.job.default.svc.cluster.local"), "127.7.0.1");
  EXPECT_EQ(Replaced("tcp://job-1-0.job.default.svc:29500,job-1-1.job.default.svc.cluster.local/x"),
            "tcp://127.7.0.1:29500,127.7.0.2/x");
  EXPECT_EQ(Replaced("--job-1-0.job.default.svc"), "--127.7.0.1");
  EXPECT_EQ(Replaced("127.255.3.4"), "127.7.0.1");
  EXPECT_EQ(Replaced("[127.255.3.4]:80 127.255.3.4. job-1-1.job.default.svc."), "[127.7.0.1]:80 127.7.0.1. 127.7.0.2.");
  EXPECT_EQ(missing_, "");
}

TEST_F(ReplaceNamesTest, WhatIsNoNameOfTheClusterStays) {
  for (const char* text : {"",
                           ".svc",
                           "a.svc",
                           "a.b.svc",
                           ".a.b.svc",
                           "a..b.svc",
                           "a.-b.c.svc",
                           "a.B.c.svc",
                           "--.b.c.svc",
                           "a.b.c.svcs",
                           "a.b.c.svc.cluster.localhost",
                           "a.b.c.svc.example.com",
                           "127.255.",
                           "127.255.1",
                           "127.255.1.",
                           "127.255.1234.1",
                           "127.255.1.2345",
                           "x127.255.1.2",
                           "3127.255.1.2",
                           "127.255.1.2x",
                           "127.254.1.2"}) {
    EXPECT_EQ(Replaced(text), text);
    EXPECT_EQ(missing_, "") << text;
  }
  EXPECT_EQ(asked_, 0);
}

TEST_F(ReplaceNamesTest, WhatDoesNotResolveIsNamed) {
  Replaced("job-1-0.job.default.svc,job-1-7.job.default.svc");
  EXPECT_EQ(missing_, "job-1-7.job.default.svc");
  Replaced("http://127.255.9.9/");
  EXPECT_EQ(missing_, "127.255.9.9");
}

// They come from strangers: length costs time alone, and no more than in proportion.
TEST_F(ReplaceNamesTest, LongValuesEnd) {
  const auto repeated = [](const std::string& part) {
    std::string text;
    while (text.size() < 1 << 20) text += part;
    return text;
  };
  for (const char* part : {"a", "a.", ".svc", ".svc.cluster.local", "a.b.c.svcs", "-", "127.255.", "127.255.1.2x"}) {
    const std::string text = repeated(part);
    EXPECT_TRUE(Replaced(text) == text) << part;
  }
  asked_ = 0;
  const std::string many = repeated("job-1-0.job.default.svc 127.255.3.4 ");
  EXPECT_LT(Replaced(many).size(), many.size());
  EXPECT_EQ(asked_, 2) << "each once";
}

TEST(Expand, AsInKubernetes) {
  const Variables variables = {{"A", "1"}, {"LONG_NAME", "$(A)"}};
  EXPECT_EQ(Expand("$(A)-$(LONG_NAME)-$$(A)-$(B)-$A-$(", variables), "1-$(A)-$(A)-$(B)-$A-$(");
  EXPECT_EQ(Expand(")$(A))$", variables), ")1)$");
}

TEST(Expand, LongTextsEnd) {
  std::string open;
  while (open.size() < 4 << 20) open += "$(";
  EXPECT_TRUE(Expand(open.substr(0, 1000), {}) == open.substr(0, 1000));
  EXPECT_GE(Expand(open, {}).size(), kMaxWord);
  EXPECT_GE(Expand(open + ")", {}).size(), kMaxWord);
}

nlohmann::json Variable(const std::string& name, const std::string& value) {
  return {{"name", name}, {"value", value}};
}

TEST(MakeEnvironment, AVariableThatNoProgramCanBeGivenIsRefused) {
  nlohmann::json doubled = nlohmann::json::array({Variable("V0", "lol")});
  for (int i = 1; i < 60; ++i) {
    const std::string before = "$(V" + std::to_string(i - 1) + ")";
    doubled.push_back(Variable("V" + std::to_string(i), before + before));
  }
  const Result<ContainerEnvironment> endless = MakeEnvironment({}, {{"env", doubled}}, {}, {});
  ASSERT_TRUE(endless.status().Is(Code::kInvalid));
  EXPECT_NE(endless.status().message().find("env V16: longer than 131072 bytes"), std::string::npos)
      << endless.status().ToString();
  const auto with = [](size_t size) {
    return MakeEnvironment({}, {{"env", {Variable("V", std::string(size, 'x'))}}}, {}, {}).ok();
  };
  EXPECT_TRUE(with(kMaxWord - 3));
  EXPECT_FALSE(with(kMaxWord - 2));
}

// What worker `rank` of a job is given, whose container is limited to so many GPUs.
std::string Visible(const char* rank, const nlohmann::json& limits) {
  const nlohmann::json container = {{"env", {Variable("PET_NODE_RANK", rank)}}, {"resources", {{"limits", limits}}}};
  return MakeEnvironment({}, container, {}, {})->variables.at("CUDA_VISIBLE_DEVICES");
}

TEST(MakeEnvironment, AContainerSeesTheGpusThatItIsLimitedToAndNoOther) {
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(Visible("0", nlohmann::json::object()), "");
  EXPECT_EQ(Visible("1", {{"cpu", "4"}}), "");
  EXPECT_EQ(Visible("0", {{"nvidia.com/gpu", 1}}), "0");
  EXPECT_EQ(Visible("1", {{"nvidia.com/gpu", "2"}}), "2,3");
  EXPECT_EQ(Visible("2147483647", {{"nvidia.com/gpu", 1}}), "2147483647") << "and takes no time";
  setenv("CUDA_VISIBLE_DEVICES", "GPU-a,5,MIG-b", 1);
  EXPECT_EQ(Visible("0", {{"nvidia.com/gpu", 2}}), "GPU-a,5");
  EXPECT_EQ(Visible("1", {{"nvidia.com/gpu", 2}}), "MIG-b") << "there are no more";
  EXPECT_EQ(Visible("2", {{"nvidia.com/gpu", 2}}), "");
  EXPECT_EQ(Visible("0", nlohmann::json::object()), "");
  const nlohmann::json own = {{"env", {Variable("CUDA_VISIBLE_DEVICES", "3")}}};
  EXPECT_EQ(MakeEnvironment({}, own, {}, {})->variables.at("CUDA_VISIBLE_DEVICES"), "3") << "the template's word";
  unsetenv("CUDA_VISIBLE_DEVICES");
}

}  // namespace
}  // namespace trainyard::local

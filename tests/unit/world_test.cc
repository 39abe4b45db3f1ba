#include "trainer/launch/world.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "trainer/base/error.h"
#include "trainer/launch/route.h"

namespace trainyard {
namespace {

// Sets variables for one test.
class WorldTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"RANK",
                             "WORLD_SIZE",
                             "LOCAL_RANK",
                             "LOCAL_WORLD_SIZE",
                             "GROUP_RANK",
                             "MASTER_ADDR",
                             "MASTER_PORT",
                             "TORCHELASTIC_USE_AGENT_STORE",
                             "PET_NNODES",
                             "PET_NPROC_PER_NODE",
                             "PET_NODE_RANK",
                             "PET_MASTER_ADDR",
                             "PET_MASTER_PORT",
                             "SLURM_PROCID",
                             "SLURM_NTASKS",
                             "SLURM_LOCALID",
                             "SLURM_NODEID",
                             "SLURM_NNODES",
                             "SLURM_TASKS_PER_NODE",
                             "SLURM_JOB_NODELIST",
                             "SLURM_STEP_NODELIST",
                             "SLURM_JOB_ID"}) {
      unsetenv(name);
    }
  }
  void TearDown() override { SetUp(); }
  static void Set(const std::map<std::string, std::string>& values) {
    for (const auto& [name, value] : values) setenv(name.c_str(), value.c_str(), 1);
  }
};

TEST_F(WorldTest, AloneByDefault) {
  const World world = WorldFromEnvironment();
  EXPECT_EQ(world.size, 1);
  EXPECT_EQ(NodeWorldFromEnvironment({.nproc = 3}).procs, 3);
}

TEST_F(WorldTest, Torchrun) {
  Set({{"RANK", "3"},
       {"WORLD_SIZE", "4"},
       {"LOCAL_RANK", "1"},
       {"LOCAL_WORLD_SIZE", "2"},
       {"GROUP_RANK", "1"},
       {"MASTER_ADDR", "h"},
       {"MASTER_PORT", "29501"},
       {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  const World world = WorldFromEnvironment();
  EXPECT_EQ(world.rank, 3);
  EXPECT_EQ(world.local_rank, 1);
  EXPECT_EQ(world.master_addr, "h");
  EXPECT_EQ(world.master_port, 29501);
  EXPECT_TRUE(world.store_is_hosted);
}

TEST_F(WorldTest, Slurm) {
  Set({{"SLURM_PROCID", "5"},
       {"SLURM_NTASKS", "8"},
       {"SLURM_LOCALID", "1"},
       {"SLURM_NODEID", "1"},
       {"SLURM_NNODES", "2"},
       {"SLURM_JOB_NODELIST", "gpu[07-08,11]"},
       {"SLURM_JOB_ID", "123456"}});
  const World world = WorldFromEnvironment();
  EXPECT_EQ(world.rank, 5);
  EXPECT_EQ(world.size, 8);
  EXPECT_EQ(world.local_size, 4);
  EXPECT_EQ(world.master_addr, "gpu07");
  EXPECT_EQ(world.master_port, 23456);
  Set({{"SLURM_STEP_NODELIST", "gpu[08,11]"}});
  EXPECT_EQ(WorldFromEnvironment().master_addr, "gpu08") << "the step's, which does without the job's first node";
  EXPECT_EQ(NodeWorldFromEnvironment().master_addr, "gpu08");
}

TEST_F(WorldTest, SlurmsNodesMayHaveUnequalNumbersOfRanks) {
  const std::map<std::string, std::string> good = {{"SLURM_PROCID", "0"},
                                                   {"SLURM_NTASKS", "7"},
                                                   {"SLURM_LOCALID", "0"},
                                                   {"SLURM_NNODES", "4"},
                                                   {"MASTER_ADDR", "h"}};
  const auto local_size = [&](const char* node, const char* tasks) {
    SetUp();
    Set(good);
    Set({{"SLURM_NODEID", node}, {"SLURM_TASKS_PER_NODE", tasks}});
    return WorldFromEnvironment().local_size;
  };
  EXPECT_EQ(local_size("0", "2(x3),1"), 2);
  EXPECT_EQ(local_size("2", "2(x3),1"), 2);
  EXPECT_EQ(local_size("3", "2(x3),1"), 1);
  EXPECT_EQ(local_size("1", "1,4,1(x2)"), 4);
  for (const char* tasks : {"", "2(x3)", "2(x3),", "2(x0),1", "2(3),1", "x", "2(x99999999999),1"})
    EXPECT_THROW(local_size("3", tasks), ConfigError) << tasks;
}

TEST_F(WorldTest, RanksAreWholeNodesOfThem) {
  const auto nodes = [&](std::map<std::string, std::string> values, std::optional<int> nproc) {
    SetUp();
    Set(values);
    Set({{"MASTER_ADDR", "h"}});
    return NodeWorldFromEnvironment({.nproc = nproc});
  };
  EXPECT_EQ(nodes({{"WORLD_SIZE", "6"}, {"LOCAL_WORLD_SIZE", "2"}, {"GROUP_RANK", "2"}}, std::nullopt).nodes, 3);
  EXPECT_EQ(nodes({{"WORLD_SIZE", "6"}, {"LOCAL_WORLD_SIZE", "2"}, {"RANK", "4"}}, 2).node, 2);
  EXPECT_EQ(nodes({{"WORLD_SIZE", "2"}, {"RANK", "1"}}, 1).node, 1);
  const auto refusal = [&](const std::map<std::string, std::string>& values, std::optional<int> nproc) {
    try {
      nodes(values, nproc);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(refusal({{"WORLD_SIZE", "5"}, {"LOCAL_WORLD_SIZE", "2"}}, std::nullopt),
            "WORLD_SIZE: 5 is not allowed; expected a multiple of LOCAL_WORLD_SIZE, which is 2");
  EXPECT_EQ(
      refusal({{"WORLD_SIZE", "2"}}, 2),
      "--nproc (PET_NPROC_PER_NODE): 2 is not allowed; WORLD_SIZE is 2, and LOCAL_WORLD_SIZE (1 where it is missing) "
      "says 1 a node");
}

TEST_F(WorldTest, NodeLists) {
  const auto first = [](const std::string& list) { return FirstSlurmHost("SLURM_JOB_NODELIST", list); };
  EXPECT_EQ(first(""), "");
  EXPECT_EQ(first("node1"), "node1");
  EXPECT_EQ(first("a,b"), "a");
  EXPECT_EQ(first("n[3,5-6],m"), "n3");
  EXPECT_EQ(first("a-b.c,n[3,5-6]x"), "a-b.c") << "what comes behind the first is not read";
  for (const char* list : {"rack[0-1]_blade[0-2]", "n[3-5]-ib,m", "n[3-5", "n[]", "n3]"})
    EXPECT_THROW(first(list), ConfigError) << list;
}

TEST_F(WorldTest, PodsOfTheContract) {
  Set({{"RANK", "1"},
       {"WORLD_SIZE", "2"},
       {"LOCAL_RANK", "0"},
       {"LOCAL_WORLD_SIZE", "1"},
       {"GROUP_RANK", "1"},
       {"MASTER_ADDR", "job-1-0.job.ns.svc"},
       {"MASTER_PORT", "20005"}});
  const NodeWorld one = NodeWorldFromEnvironment();
  EXPECT_EQ(one.nodes, 2);
  EXPECT_EQ(one.node, 1);
  EXPECT_EQ(one.procs, 1);
  SetUp();
  Set({{"PET_NNODES", "3"},
       {"PET_NPROC_PER_NODE", "2"},
       {"PET_NODE_RANK", "2"},
       {"PET_MASTER_ADDR", "m"},
       {"PET_MASTER_PORT", "20006"}});
  const NodeWorld many = NodeWorldFromEnvironment();
  EXPECT_EQ(many.nodes, 3);
  EXPECT_EQ(many.procs, 2);
  EXPECT_EQ(many.master_addr, "m");
  EXPECT_EQ(many.master_port, 20006);
}

TEST_F(WorldTest, WrongVariablesAreNamed) {
  Set({{"RANK", "4"}, {"WORLD_SIZE", "4"}});
  EXPECT_THROW(WorldFromEnvironment(), ConfigError);
  Set({{"RANK", "x"}});
  EXPECT_THROW(WorldFromEnvironment(), ConfigError);
  SetUp();
  Set({{"WORLD_SIZE", "4"}});
  EXPECT_THROW(WorldFromEnvironment(), ConfigError);
}

TEST_F(WorldTest, NumbersHaveARange) {
  const std::map<std::string, std::string> good = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "29501"}, {"LOCAL_WORLD_SIZE", "2"}};
  Set(good);
  EXPECT_EQ(WorldFromEnvironment().size, 2);
  const std::pair<const char*, const char*> bad[] = {{"MASTER_PORT", "99999"},
                                                     {"MASTER_PORT", "0"},
                                                     {"WORLD_SIZE", "99999999999"},
                                                     {"RANK", "4294967297"},
                                                     {"LOCAL_RANK", "-1"},
                                                     {"LOCAL_WORLD_SIZE", "3"},
                                                     {"GROUP_RANK", "12345678901234567"},
                                                     {"LOCAL_WORLD_SIZE", "two"}};
  for (const auto& [name, value] : bad) {
    SetUp();
    Set(good);
    setenv(name, value, 1);
    try {
      WorldFromEnvironment();
      ADD_FAILURE() << name << "=" << value;
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()).find(std::string(name) + ": " + value + " is not allowed"), 0u)
          << error.what();
    }
  }
}

TEST_F(WorldTest, ALargerWorldNeedsTheMastersAddress) {
  Set({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  EXPECT_THROW(WorldFromEnvironment(), ConfigError);
  SetUp();
  Set({{"PET_NNODES", "2"}, {"PET_NODE_RANK", "1"}});
  EXPECT_THROW(NodeWorldFromEnvironment({.nproc = 1}), ConfigError);
  Set({{"PET_MASTER_ADDR", "m"}});
  EXPECT_EQ(NodeWorldFromEnvironment({.nproc = 1}).master_addr, "m");
}

TEST_F(WorldTest, FlagsWinOverTheEnvironment) {
  Set({{"PET_NNODES", "3"}, {"PET_NODE_RANK", "2"}, {"MASTER_ADDR", "env"}, {"MASTER_PORT", "1234"}});
  const NodeWorld node = NodeWorldFromEnvironment({.nproc = 4, .nodes = 2, .node = 1, .master = "first:29501"});
  EXPECT_EQ(node.nodes, 2);
  EXPECT_EQ(node.node, 1);
  EXPECT_EQ(node.procs, 4);
  EXPECT_EQ(node.master_addr, "first");
  EXPECT_EQ(node.master_port, 29501);
  EXPECT_EQ(NodeWorldFromEnvironment({.nproc = 1, .nodes = 5}).node, 2) << "what no flag says";
  const std::map<std::string, std::pair<std::string, int>> masters = {{"h", {"h", 1234}},
                                                                      {"10.0.0.1:80", {"10.0.0.1", 80}},
                                                                      {"[fe80::1]:80", {"fe80::1", 80}},
                                                                      {"[fe80::1]", {"fe80::1", 1234}},
                                                                      {"fe80::1", {"fe80::1", 1234}}};
  for (const auto& [text, expected] : masters) {
    const NodeWorld world = NodeWorldFromEnvironment({.nodes = 2, .node = 1, .master = text});
    EXPECT_EQ(world.master_addr, expected.first) << text;
    EXPECT_EQ(world.master_port, expected.second) << text;
  }
  for (const char* bad : {"h:0", "h:99999", "h:x", ":80", "a b:c:d", "[h"})
    EXPECT_THROW(NodeWorldFromEnvironment({.nodes = 2, .node = 1, .master = bad}), ConfigError) << bad;
  EXPECT_THROW(NodeWorldFromEnvironment({.nodes = 2, .node = 2, .master = "h"}), ConfigError);
}

// `srun trainyard launch --nnodes 2`, in an allocation of as many nodes or of more.
TEST_F(WorldTest, WhatNoFlagSaysOfAWorldIsSlurms) {
  Set({{"SLURM_NNODES", "2"}, {"SLURM_NODEID", "1"}, {"SLURM_JOB_NODELIST", "gpu[07-08]"}, {"SLURM_JOB_ID", "5"}});
  const NodeWorld node = NodeWorldFromEnvironment({.nproc = 4, .nodes = 2});
  EXPECT_EQ(node.node, 1);
  EXPECT_EQ(node.master_addr, "gpu07");
  EXPECT_EQ(node.master_port, 20005);
  EXPECT_EQ(NodeWorldFromEnvironment({.nodes = 2, .node = 0, .master = "h"}).node, 0);
  EXPECT_EQ(NodeWorldFromEnvironment({.nodes = 2, .master = "h"}).master_addr, "h");
  EXPECT_EQ(NodeWorldFromEnvironment({.nodes = 1}).node, 0) << "a world of its own on each node";
  EXPECT_EQ(NodeWorldFromEnvironment({.nodes = 3, .node = 2, .master = "h"}).node, 2) << "more than SLURM knows";
}

TEST(Route, TheLocalAddressIsOfTheHostsFamily) {
  EXPECT_EQ(LocalAddressTowards("127.0.0.1", true), "127.0.0.1");
  EXPECT_EQ(LocalAddressTowards("localhost", true), "127.0.0.1");
  EXPECT_THROW(LocalAddressTowards("no.such.host.invalid", true), PeerError);
  if (access("/proc/net/if_inet6", R_OK) != 0) GTEST_SKIP() << "this machine has no IPv6";
  EXPECT_EQ(LocalAddressTowards("::1", true), "::1");
}

TEST_F(WorldTest, NodesHaveARange) {
  const std::map<std::string, std::string> good = {
      {"PET_NNODES", "2"}, {"PET_NODE_RANK", "1"}, {"PET_MASTER_ADDR", "m"}, {"PET_NPROC_PER_NODE", "1"}};
  const std::pair<const char*, const char*> bad[] = {
      {"PET_NNODES", "99999999999"}, {"PET_NNODES", "65536"},  // times two ranks
      {"PET_NODE_RANK", "2"},        {"PET_NPROC_PER_NODE", "0"}, {"PET_MASTER_PORT", "99999"}, {"MASTER_PORT", "x"}};
  for (const auto& [name, value] : bad) {
    Set(good);
    if (std::string(name) == "PET_NNODES") setenv("PET_NPROC_PER_NODE", "2", 1);
    setenv(name, value, 1);
    EXPECT_THROW(NodeWorldFromEnvironment(), ConfigError) << name << "=" << value;
    SetUp();
  }
}

}  // namespace
}  // namespace trainyard

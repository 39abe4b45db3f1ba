#include "trainer/device/plugin.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "trainer/base/error.h"

namespace trainyard {
namespace {

TEST(Plugin, WhatCannotBeOpenedIsToldInOneLine) {
  const std::string missing = Describe(OpenPlugin("/nowhere/libtrainyard_cuda.so"));
  EXPECT_EQ(missing, "/nowhere/libtrainyard_cuda.so is not there");

  const std::filesystem::path text = testing::TempDir() + "/libtrainyard_cuda.so";
  std::ofstream(text) << "no library";
  const Plugin none = OpenPlugin(text);
  EXPECT_EQ(none.table, nullptr);
  EXPECT_NE(none.problem.find(text.string() + " does not open: "), std::string::npos) << none.problem;

  const Plugin other = OpenPlugin(TRAINYARD_LIBRARY_WITHOUT_SYMBOL);
  EXPECT_EQ(other.problem, std::string(TRAINYARD_LIBRARY_WITHOUT_SYMBOL) +
                               " is no plug-in of this trainyard: it has no trainyard_plugin_1");
}

// Whatever stands behind `build` in the table may differ: nothing of it is looked at.
TEST(Plugin, OneOfAnotherBuildIsRefusedByItsName) {
  const Plugin plugin = OpenPlugin(TRAINYARD_PLUGIN_OF_ANOTHER_BUILD);
  EXPECT_EQ(plugin.table, nullptr);
  EXPECT_EQ(Describe(plugin), std::string(TRAINYARD_PLUGIN_OF_ANOTHER_BUILD) +
                                  " is of trainyard 0.0.0 (0123456789ab), and this is " + PluginBuild() +
                                  ": program and plug-in need one build");
}

// What a plug-in throws is caught here by its type. Over stand-ins of CUDA's libraries tests/integration/test_plugin.py
// runs it.
TEST(Plugin, WhatItThrowsIsOfOurTypes) {
  const Plugin& plugin = CudaPlugin();
  if (!plugin.table) GTEST_SKIP() << plugin.problem;
  EXPECT_THROW(plugin.table->open(1000), ConfigError);
}

}  // namespace
}  // namespace trainyard

#include "common/build_info.h"

#include <gnu/libc-version.h>

#include <algorithm>

#include "commit.h"  // made by cmake/commit.cmake

namespace trainyard {

const BuildInfo& Build() {
  static const BuildInfo info{TRAINYARD_VERSION, TRAINYARD_COMMIT, TRAINYARD_BUILD_TYPE, TRAINYARD_COMPILER};
  return info;
}

std::vector<LibraryVersion> CommonLibraries() {
  const auto number = [](int major, int minor) { return std::to_string(major) + "." + std::to_string(minor); };
  return {{"glibc", number(__GLIBC__, __GLIBC_MINOR__), gnu_get_libc_version()},
          {"yaml-cpp", TRAINYARD_YAML_CPP, ""},
          {"nlohmann/json", TRAINYARD_NLOHMANN_JSON, ""},
          {"CLI11", TRAINYARD_CLI11, ""},
          {"prometheus-cpp", TRAINYARD_PROMETHEUS_CPP, "unknown"}};
}

std::string VersionText(const std::string& program, const std::vector<LibraryVersion>& libraries) {
  const BuildInfo& info = Build();
  std::string text = program + " " + info.version + "\ncommit " + info.commit + "\nbuild " + info.build_type + ", " +
                     info.compiler + "\n";
  size_t width = 0;
  for (const LibraryVersion& library : libraries) width = std::max(width, library.name.size());
  for (const LibraryVersion& library : libraries) {
    text += "library " + library.name + std::string(width - library.name.size(), ' ') + " " + library.compiled;
    text += library.loaded.empty() ? ", part of the program\n" : ", loaded " + library.loaded + "\n";
  }
  text.pop_back();  // whoever prints it ends the line
  return text;
}

std::string UserAgent(const std::string& program) {
  return program + "/" + Build().version + " (" + Build().commit + ")";
}

}  // namespace trainyard

// Which build of Trainyard this is. The one place that says it: --version, metrics, requests and checkpoints ask here.
#ifndef TRAINYARD_COMMON_BUILD_INFO_H_
#define TRAINYARD_COMMON_BUILD_INFO_H_

#include <string>
#include <vector>

namespace trainyard {

struct BuildInfo {
  const char* version;     // project(VERSION) of CMakeLists.txt, "0.1.0"
  const char* commit;      // twelve digits, "-dirty" behind them when files of the checkout were changed; or "unknown"
  const char* build_type;  // "Release"
  const char* compiler;    // "GNU 12.2.0"
};

const BuildInfo& Build();

// A library as the program was compiled against it, and as it was found when the program started.
struct LibraryVersion {
  std::string name, compiled;
  std::string loaded;  // empty: it is part of the program
};

// Those of both programs.
std::vector<LibraryVersion> CommonLibraries();

// What --version prints: "trainyard 0.1.0" alone on the first line, for scripts; then commit, build and libraries.
std::string VersionText(const std::string& program, const std::vector<LibraryVersion>& libraries);

// "trainyard-operator/0.1.0 (c52b856f1a2b)": a product and a comment (RFC 9110, 10.1.5).
std::string UserAgent(const std::string& program);

}  // namespace trainyard

#endif  // TRAINYARD_COMMON_BUILD_INFO_H_

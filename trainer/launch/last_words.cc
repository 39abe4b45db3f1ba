#include "trainer/launch/last_words.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "trainer/base/abandonable_thread.h"
#include "trainer/base/text.h"

namespace trainyard {
namespace {

// A file of 4 KiB that takes longer lies on a volume that does not answer; a pod has 30 seconds to end, and what waits
// behind this (other nodes, the ranks' logs) takes up to eight of them.
constexpr std::chrono::seconds kPatience{5};

// Returns what went wrong.
std::string Write(const std::string& path, const std::string& text) {
  // O_NONBLOCK: opening a pipe would wait for whoever reads it. Of a regular file it changes nothing.
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
  if (fd < 0) return errno == ENXIO ? "it is not a regular file" : std::strerror(errno);
  struct stat file {};
  std::string problem;
  if (fstat(fd, &file) != 0 || !S_ISREG(file.st_mode)) {
    problem = "it is not a regular file";
  } else if (const ssize_t n = ftruncate(fd, 0) == 0 ? write(fd, text.data(), text.size()) : -1; n < 0) {
    problem = std::strerror(errno);
  } else if (static_cast<size_t>(n) < text.size()) {
    problem = Format("it takes %zd of %zu bytes; is there room?", n, text.size());
  }
  close(fd);
  return problem;
}

}  // namespace

std::string WriteLastWords(const std::string& path, const std::string& text) {
  const auto problem = std::make_shared<std::string>();
  const bool written = Within(kPatience, [=] { *problem = Write(path, text); });
  if (written && problem->empty()) return "";
  const std::string why = written ? *problem : "it takes nothing";
  return "cannot write the termination message to " + path + ": " + why;
}

}  // namespace trainyard

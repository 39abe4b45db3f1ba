#include "trainer/base/process_title.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace trainyard {
namespace {

// Behind the last of the strings that lie one behind the other from `end` on.
char* Behind(char* const* strings, char* end) {
  for (; *strings && *strings == end; ++strings) end += std::strlen(end) + 1;
  return end;
}

}  // namespace

ProcessTitle::ProcessTitle(int argc, char** argv) {
  if (argc == 0) return;
  begin_ = argv[0];
  arguments_end_ = Behind(argv, begin_);
  end_ = Behind(environ, arguments_end_);
}

void ProcessTitle::Set(const std::string& title) const {
  if (begin_ == end_) return;
  for (char** entry = environ; *entry; ++entry) *entry = strdup(*entry);
  program_invocation_name = strdup(program_invocation_name);  // lies there too, and so does its last part
  program_invocation_short_name = basename(program_invocation_name);
  // Where the arguments' last byte is not 0 the kernel reads on, to the next 0.
  const size_t size = std::min(title.size(), static_cast<size_t>(end_ - begin_) - 1);
  char* const after = std::copy_n(title.begin(), size, begin_);
  std::fill(after, std::max(after + 1, arguments_end_), '\0');
}

}  // namespace trainyard

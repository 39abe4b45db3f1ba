#include "operator/kube/json_lines.h"

namespace trainyard::kube {

Status JsonLines::Feed(const char* data, size_t size, const std::function<void(nlohmann::json)>& on_document) {
  size_t searched = rest_.size();
  rest_.append(data, size);
  size_t begin = 0;
  for (size_t end = rest_.find('\n', searched); end != std::string::npos; end = rest_.find('\n', begin)) {
    if (end > begin) {
      auto document = parser_.Parse(std::string_view(rest_).substr(begin, end - begin));
      if (document.is_discarded()) return Status(Code::kInternal, "the stream holds something that is no JSON");
      on_document(std::move(document));
    }
    begin = end + 1;
  }
  rest_.erase(0, begin);
  if (rest_.size() > max_bytes_)
    return Status(Code::kInternal,
                  "one document of the stream is longer than " + std::to_string(max_bytes_) + " bytes");
  return Status::Ok();
}

}  // namespace trainyard::kube

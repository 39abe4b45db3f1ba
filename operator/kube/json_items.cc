#include "operator/kube/json_items.h"

namespace trainyard::kube {
namespace {

// How deep we are within the list itself, and within an item.
constexpr int kListDepth = 2, kItemDepth = 3;

}  // namespace

Status JsonItems::Feed(const char* data, size_t size, const OnItem& on_item) {
  const std::string_view piece(data, size);
  size_t begin = 0;  // of what is in no text yet
  for (size_t i = 0; i < size; ++i) {
    const char c = piece[i];
    const bool in_string = depth_.in_string();
    depth_.Read(c);
    if (in_string) continue;
    if (place_ == Place::kBetween) {
      if (c == '{') place_ = Place::kItem;
      if (c == ']') place_ = Place::kAround;
      begin = i;
      if (place_ == Place::kBetween && std::string_view(", \t\r\n").find(c) == std::string_view::npos)
        return Status(Code::kInternal, "the list holds something that is no object");
    } else if (place_ == Place::kItem && depth_.depth() < kItemDepth) {
      if (Status status = Close(piece.substr(begin, i + 1 - begin), on_item); !status.ok()) return status;
      place_ = Place::kBetween;
    } else if (place_ == Place::kAround && c == '[' && depth_.depth() == kListDepth) {
      if (Status status = Keep(around_, piece.substr(begin, i + 1 - begin)); !status.ok()) return status;
      begin = i + 1;
      if (ItemsBegin()) place_ = Place::kBetween;
    }
  }
  if (place_ == Place::kBetween) return Status::Ok();
  return Keep(place_ == Place::kItem ? item_ : around_, piece.substr(begin));
}

// Whether what stands around ends with: "items": [
bool JsonItems::ItemsBegin() const {
  std::string_view text(around_);
  text.remove_suffix(1);
  const auto skip_space = [&] { text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1); };
  skip_space();
  if (!text.ends_with(':')) return false;
  text.remove_suffix(1);
  skip_space();
  return text.ends_with("\"items\"");
}

Status JsonItems::Fits(size_t bytes) const {
  if (bytes <= max_bytes_) return Status::Ok();
  return Status(Code::kInternal, "one object of the list is longer than " + std::to_string(max_bytes_) + " bytes");
}

Status JsonItems::Keep(std::string& text, std::string_view piece) const {
  Status status = Fits(text.size() + piece.size());
  if (status.ok()) text.append(piece);
  return status;
}

Status JsonItems::Close(std::string_view last, const OnItem& on_item) {
  const bool whole = item_.empty();  // most lie within one piece, and are read where they are
  if (Status status = whole ? Fits(last.size()) : Keep(item_, last); !status.ok()) return status;
  const nlohmann::json item = parser_.Parse(whole ? last : std::string_view(item_));
  item_.clear();
  if (item.is_discarded()) return Status(Code::kInternal, "the list holds something that is no JSON");
  on_item(item);
  return Status::Ok();
}

Result<nlohmann::json> JsonItems::End() const {
  nlohmann::json around = ParseJson(around_);
  if (place_ != Place::kAround || depth_.depth() != 0 || !around.is_object())
    return Status(Code::kInternal, "the answer is no whole list");
  return around;
}

}  // namespace trainyard::kube

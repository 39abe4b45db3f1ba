// Removes folders of large files.
#ifndef TRAINYARD_TRAINER_BASE_REMOVE_FOLDER_H_
#define TRAINYARD_TRAINER_BASE_REMOVE_FOLDER_H_

#include <filesystem>
#include <functional>
#include <system_error>

namespace trainyard {

// Removes a folder and what lies in it. `tick` is called before each file: large ones take a network file system a
// while each. Of a link the link alone: what it leads to may be somebody's archive, or hostile. Returns the first
// error, and goes on after it; what is not there is none. Throws only what `tick` does.
std::error_code RemoveFolder(const std::filesystem::path& path, const std::function<void()>& tick);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_BASE_REMOVE_FOLDER_H_

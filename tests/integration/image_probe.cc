// Answers for Python's oracles: a request per line of stdin, JSON, and an answer per line of stdout. Values go through
// files of float32.
#include <iostream>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/file.h"
#include "trainer/data/csv.h"
#include "trainer/data/nifti.h"
#include "trainer/data/png_file.h"
#include "trainer/data/transform.h"
#include "trainer/data/window_order.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

Volume VolumeOf(const Json& request) {
  Volume volume{request["shape"].get<std::vector<int64_t>>(), {}};
  const std::string bytes = ReadFile(request["values"].get<std::string>(), uint64_t{1} << 32);
  volume.values.resize(bytes.size() / sizeof(float));
  std::memcpy(volume.values.data(), bytes.data(), bytes.size());
  return volume;
}

Json Give(const Volume& volume, const Json& request) {
  OutputFile out(request["out"].get<std::string>());
  out.Write(std::as_bytes(std::span(volume.values)));
  return {{"shape", volume.shape}};
}

Json Nifti(const Json& request) {
  const NiftiImage image = ReadNifti(request["path"].get<std::string>());
  Json answer = Give(image.volume, request);
  answer["affine"] = image.affine;
  answer["spacing"] = image.spacing;
  answer["voxel_mm"] = image.voxel_mm;
  answer["type"] = static_cast<int>(image.type);
  return answer;
}

Json WriteNiftiFile(const Json& request) {
  NiftiImage image{.volume = VolumeOf(request)};
  image.affine = request["affine"].get<Affine>();
  image.type = static_cast<NiftiType>(request["type"].get<int>());
  WriteNifti(request["path"].get<std::string>(), image);
  return Json::object();
}

Json Png(const Json& request) {
  const PngImage image = ReadPng(request["path"].get<std::string>());
  Json answer = Give(image.pixels, request);
  answer["bits"] = image.bits;
  return answer;
}

Json WritePngFile(const Json& request) {
  WritePng(request["path"].get<std::string>(), {VolumeOf(request), request["bits"].get<int>()});
  return Json::object();
}

Json Table(const Json& request) {
  const Csv csv = Csv::Read(request["path"].get<std::string>());
  Json rows = Json::array();
  for (int64_t row = 0; row < csv.rows(); ++row) {
    Json cells = Json::array();
    for (size_t column = 0; column < csv.columns().size(); ++column) cells.push_back(csv.Text(row, column));
    rows.push_back(cells);
  }
  return {{"columns", csv.columns()}, {"rows", rows}};
}

Json WriteTable(const Json& request) {
  const auto columns = request["columns"].get<std::vector<std::string>>();
  const auto rows = request["rows"].get<std::vector<std::vector<std::string>>>();
  WriteCsv(request["path"].get<std::string>(), columns, rows);
  return Json::object();
}

Transforms ChainOf(const Json& steps) {
  Transforms chain;
  for (const Json& step : steps) {
    const auto name = step[0].get<std::string>();
    const auto number = [&](size_t i) { return step[i].get<float>(); };
    const auto index = [&](size_t i) { return step[i].get<size_t>(); };
    if (name == "window") chain.Window({number(1), number(2), number(3), number(4), step[5].get<bool>()});
    if (name == "clamp") chain.Clamp(number(1), number(2));
    if (name == "area") chain.Area(step[1].get<std::vector<int64_t>>());
    if (name == "linear") chain.Linear(step[1].get<std::vector<int64_t>>(), step[2].get<bool>());
    if (name == "flip") chain.Flip(index(1));
    if (name == "rotate90") chain.Rotate90(step[1].get<int>(), index(2), index(3));
    if (name == "random_flip") chain.RandomFlip(step[1].get<double>(), index(2));
    if (name == "random_rotate90") chain.RandomRotate90(step[1].get<double>(), index(2), index(3));
    if (name == "random_scale") chain.RandomScale(step[1].get<double>(), number(2), number(3));
  }
  return chain;
}

Json Transform(const Json& request) {
  return Give(ChainOf(request["chain"])(VolumeOf(request), request.value("key", uint64_t{0})), request);
}

// The windows of an order, before and after they are permuted.
Json Windows(const Json& request) {
  const auto length = request["length"].get<int64_t>();
  const Window window = ResolveWindow(length, request["rate"].get<double>(), request["replace"].get<double>());
  Json answer = {
      {"items", window.items}, {"replace", window.replace}, {"windows", Json::array()}, {"orders", Json::array()}};
  if (window.items == 0) return answer;
  const WindowOrder order(length, window, request["seed"].get<uint64_t>());
  for (int64_t epoch = 0; epoch < request["epochs"].get<int64_t>(); ++epoch) {
    Json items = Json::array(), permuted = Json::array();
    for (int64_t i = 0; i < window.items; ++i) {
      items.push_back(order.ItemOf(epoch, i));
      permuted.push_back(order.ItemAt(epoch, i));
    }
    answer["windows"].push_back(items);
    answer["orders"].push_back(permuted);
  }
  return answer;
}

const std::map<std::string, Json (*)(const Json&)> kOperations = {{"nifti", Nifti},
                                                                  {"write_nifti", WriteNiftiFile},
                                                                  {"png", Png},
                                                                  {"write_png", WritePngFile},
                                                                  {"csv", Table},
                                                                  {"write_csv", WriteTable},
                                                                  {"transform", Transform},
                                                                  {"windows", Windows}};

Json Answer(const std::string& line) {
  const Json request = Json::parse(line);
  try {
    return kOperations.at(request["op"].get<std::string>())(request);
  } catch (const DataError& error) {
    return {{"error", error.what()}};
  } catch (const std::invalid_argument& error) {
    return {{"refused", error.what()}};
  }
}

}  // namespace
}  // namespace trainyard

int main() {
  for (std::string line; std::getline(std::cin, line);) std::cout << trainyard::Answer(line).dump() << std::endl;
}

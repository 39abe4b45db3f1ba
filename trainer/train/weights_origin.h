// What a file of weights says about the model that they were trained in. Shapes alone do not tell a model of eight
// heads from one of four.
#ifndef TRAINYARD_TRAINER_TRAIN_WEIGHTS_ORIGIN_H_
#define TRAINYARD_TRAINER_TRAIN_WEIGHTS_ORIGIN_H_

#include <map>
#include <string>
#include <vector>

#include "trainer/config/config.h"

namespace trainyard {

// The header's metadata for a model of this configuration: {"format": "pt"}, as transformers wants it, and under
// "trainyard" a JSON object of the identity fields of the sections task, model and data.
std::map<std::string, std::string> WeightsMetadata(const Config& config);

struct OtherOrigin {
  // "model.heads: 8 there, 4 here" each: of the model but for its dropout, of its task, and of what its data are read
  // as.
  std::vector<std::string> model, task, data;
};

// What differs from the metadata of a file. Nothing when the file says nothing of it, as another program's, or is of
// another task: what part of a model two tasks share, nobody knows.
OtherOrigin OtherThanInFile(const std::map<std::string, std::string>& metadata, const Config& config);

}  // namespace trainyard

#endif  // TRAINYARD_TRAINER_TRAIN_WEIGHTS_ORIGIN_H_

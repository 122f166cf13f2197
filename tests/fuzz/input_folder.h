// A folder for the files of an input, for code that reads files.
#ifndef TANDEM_TESTS_FUZZ_INPUT_FOLDER_H_
#define TANDEM_TESTS_FUZZ_INPUT_FOLDER_H_

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/support/temp_dir.h"

namespace tandem::fuzz {

class InputFolder {
 public:
  const std::filesystem::path& path() const { return dir_.path(); }
  void Write(const std::string& name, std::string_view bytes) const {
    std::ofstream(dir_ / name, std::ios::binary | std::ios::trunc) << bytes;
  }
  void Remove(const std::string& name) const { std::filesystem::remove(dir_ / name); }

 private:
  testing::TempDir dir_;
};

}  // namespace tandem::fuzz

#endif  // TANDEM_TESTS_FUZZ_INPUT_FOLDER_H_

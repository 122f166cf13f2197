#include "common/model/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "tests/model/files.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::SafetensorsBytes;

class SafetensorsTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Safetensors>> Open(std::string_view bytes) {
    testing::WriteFile(path_, bytes);
    return Safetensors::Open(path_);
  }

  // Checks that a file is refused soon, with a message that names the file and the fault.
  void ExpectRefused(std::string_view bytes, const std::string& fault) {
    const auto begin = std::chrono::steady_clock::now();
    const auto opened = Open(bytes);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    ASSERT_FALSE(opened.ok()) << "want: " << fault;
    EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(opened.status().message()),
                AllOf(HasSubstr("broken.safetensors"), HasSubstr(fault)));
    EXPECT_LT(opened.status().message().size(), 1000u);
  }

  // Checks that a file with one tensor "a", this entry, and `data_bytes` of data is refused.
  void ExpectEntryRefused(const std::string& entry, size_t data_bytes, const std::string& fault) {
    ExpectRefused(SafetensorsBytes(R"({"a":)" + entry + "}", data_bytes), fault);
  }

  testing::TempDir folder_;
  std::filesystem::path path_ = folder_ / "broken.safetensors";
};

TEST_F(SafetensorsTest, ReadsTensorsInAnyOrder) {
  const auto opened =
      Open(SafetensorsBytes(R"({"__metadata__":{"format":"pt"},)"
                            R"("b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
                            R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                            R"("empty":{"dtype":"I64","shape":[0,5],"data_offsets":[16,16]}}   )",
                            16));
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto& tensors = (*opened)->tensors();
  ASSERT_EQ(tensors.size(), 3u);
  const Tensor& b = tensors.at("b");
  EXPECT_EQ(b.dtype, "BF16");
  EXPECT_EQ(b.shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(b.bytes, 12u);
  const char* data = (*opened)->file().bytes().end() - 16;
  EXPECT_EQ(b.data, data + 4);
  EXPECT_EQ(tensors.at("a").data, data);
  EXPECT_EQ(tensors.at("empty").bytes, 0u);
}

TEST_F(SafetensorsTest, RefusesAFileOfFewerThanEightBytes) {
  ExpectRefused("", "has 0 bytes (want at least 8, the header's length)");
  ExpectRefused("1234567", "has 7 bytes (want at least 8");
}

TEST_F(SafetensorsTest, RefusesAHeaderThatEndsPastTheFile) {
  ExpectRefused(SafetensorsBytes("{}", 0, 3), "header length 3 is past the end of the file");
  ExpectRefused(SafetensorsBytes("{}", 0, 1 << 20),
                "header length 1048576 is past the end of the file (10 bytes");
}

TEST_F(SafetensorsTest, RefusesAHeaderOverTheLimit) {
  ExpectRefused(SafetensorsBytes("{}", 0, 100'000'001),
                "header length 100000001 is over the limit of 4194304 bytes");
  ExpectRefused(SafetensorsBytes("{}", 0, UINT64_MAX),
                "header length 18446744073709551615 is over the limit");
  ExpectRefused(SafetensorsBytes("{}", 0, UINT64_MAX - 7), "is over the limit");
  testing::WriteFile(path_, SafetensorsBytes("{}", 0, 200'000'000));
  std::filesystem::resize_file(path_, 300'000'000);  // a hole, for which nothing is written
  const auto opened = Safetensors::Open(path_);
  EXPECT_THAT(std::string(opened.status().message()),
              HasSubstr("header length 200000000 is over the limit"));
}

TEST_F(SafetensorsTest, RefusesAHeaderThatIsNotJson) {
  ExpectRefused(SafetensorsBytes("", 0), "header: not valid JSON at byte");
  ExpectRefused(SafetensorsBytes("not json", 0), "header: not valid JSON at byte 2");
  ExpectRefused(SafetensorsBytes("[]", 0), "header is not a JSON object");
  ExpectRefused(SafetensorsBytes("{\"a\":\"\xff\"}", 0), "header: at \"a\": not valid JSON");
  ExpectRefused(SafetensorsBytes("{} {}", 0), "header: not valid JSON");
  ExpectRefused(SafetensorsBytes(std::string(1 << 20, '['), 0), "header: nested deeper than");
  ExpectRefused(SafetensorsBytes(R"({"a":)" + std::string(1 << 20, '[') + "}", 0),
                "header: at \"a\": nested deeper than");
}

TEST_F(SafetensorsTest, RefusesAHeaderOfTooManyValues) {
  std::string header = R"({"a":[0)";
  for (size_t i = 0; i < 250'000; ++i) header += ",0";
  ExpectRefused(SafetensorsBytes(header + "]}", 0), "at \"a\": more than 200000 values");
}

TEST_F(SafetensorsTest, RefusesAKeyGivenTwice) {
  const std::string entry = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  ExpectRefused(SafetensorsBytes(R"({"a":)" + entry + R"(,"a":)" + entry + "}", 1),
                "header: at \"a\": key given twice");
  ExpectEntryRefused(R"({"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]})", 1,
                     "at \"dtype\": key given twice");
}

TEST_F(SafetensorsTest, RefusesOverlappingTensors) {
  ExpectRefused(SafetensorsBytes(R"({"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},)"
                                 R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                                 8),
                "tensor \"b\": data_offsets begin at 4, overlapping the tensor that ends at 6");
}

TEST_F(SafetensorsTest, RefusesAGapBetweenTensors) {
  ExpectRefused(SafetensorsBytes(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                                 R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                                 8),
                "tensor \"b\": data_offsets begin at 4, leaving a gap after 3");
  ExpectEntryRefused(R"({"dtype":"U8","shape":[4],"data_offsets":[2,6]})", 6,
                     "tensor \"a\": data_offsets begin at 2, leaving a gap after 0");
  ExpectEntryRefused(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})", 6,
                     "2 bytes after the last tensor belong to none");
}

TEST_F(SafetensorsTest, RefusesReversedOffsets) {
  ExpectEntryRefused(R"({"dtype":"U8","shape":[4],"data_offsets":[4,0]})", 4,
                     "tensor \"a\": data_offsets [4, 0] are reversed");
}

TEST_F(SafetensorsTest, RefusesOffsetsPastTheEnd) {
  ExpectEntryRefused(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})", 3,
                     "tensor \"a\": data_offsets end at 4, past the file's 3 bytes of data");
  ExpectEntryRefused(
      R"({"dtype":"U8","shape":[4],"data_offsets":[18446744073709551611,18446744073709551615]})", 4,
      "tensor \"a\": data_offsets end at 18446744073709551615, past");
}

TEST_F(SafetensorsTest, RefusesOffsetsThatAreNotTwoWholeNumbers) {
  for (const char* offsets : {"[0]", "[0,4,8]", "[-4,0]", "[0,4.0]", "[0,\"4\"]", "4", "null",
                              "[0,18446744073709551616]"}) {
    ExpectEntryRefused(R"({"dtype":"U8","shape":[4],"data_offsets":)" + std::string(offsets) + "}",
                       4, "tensor \"a\": data_offsets is not an array of two whole numbers");
  }
  ExpectEntryRefused(R"({"dtype":"U8","shape":[4]})", 4, "tensor \"a\": data_offsets is not");
}

TEST_F(SafetensorsTest, RefusesAShapeThatDoesNotFitItsBytes) {
  ExpectEntryRefused(R"({"dtype":"F32","shape":[2,2],"data_offsets":[0,15]})", 15,
                     "tensor \"a\": data_offsets [0, 15] span 15 bytes, shape and dtype want 16");
  ExpectEntryRefused(R"({"dtype":"F32","shape":[],"data_offsets":[0,0]})", 0, "want 4");
  ExpectEntryRefused(R"({"dtype":"F32","shape":[0,9],"data_offsets":[0,4]})", 4, "want 0");
}

TEST_F(SafetensorsTest, RefusesAShapeThatOverflows) {
  ExpectEntryRefused(R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})", 0,
                     "tensor \"a\": shape has more than 2^64 bytes");
  ExpectEntryRefused(R"({"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]})", 0,
                     "tensor \"a\": shape has more than 2^64 bytes");
}

TEST_F(SafetensorsTest, RefusesAShapeThatIsNotWholeNumbers) {
  for (const char* shape : {"[-1]", "[1.5]", "[\"4\"]", "[[4]]", "[true]"}) {
    ExpectEntryRefused(R"({"dtype":"U8","data_offsets":[0,4],"shape":)" + std::string(shape) + "}",
                       4, "tensor \"a\": shape has an entry that is not a whole number");
  }
  ExpectEntryRefused(R"({"dtype":"U8","data_offsets":[0,4],"shape":4})", 4,
                     "tensor \"a\": shape is missing or not an array");
}

TEST_F(SafetensorsTest, RefusesAnUnknownDtype) {
  ExpectEntryRefused(R"({"dtype":"Q4_K","shape":[4],"data_offsets":[0,4]})", 4,
                     "tensor \"a\": dtype \"Q4_K\" is unknown");
  ExpectEntryRefused(R"({"dtype":7,"shape":[4],"data_offsets":[0,4]})", 4,
                     "tensor \"a\": dtype is missing or not a string");
  ExpectEntryRefused("[]", 0, "tensor \"a\": is not an object");
}

TEST_F(SafetensorsTest, RefusesEveryTruncation) {
  const std::string whole =
      SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                       R"("b":{"dtype":"U8","shape":[3],"data_offsets":[16,19]}})",
                       19);
  ASSERT_TRUE(Open(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(Open(std::string_view(whole).substr(0, size)).ok()) << size;
  }
}

TEST_F(SafetensorsTest, SurvivesEveryChangedByte) {
  std::string whole =
      SafetensorsBytes(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", 16);
  size_t refused = 0;
  for (size_t i = 0; i < whole.size() - 16; ++i) {
    const char old = whole[i];
    for (const int value : {0, 1, 32, 34, 44, 57, 93, 127, 255}) {
      whole[i] = static_cast<char>(value);
      const auto opened = Open(whole);
      if (!opened.ok()) {
        ++refused;
        continue;
      }
      for (const auto& [name, tensor] : (*opened)->tensors()) {
        ASSERT_LE(static_cast<const char*>(tensor.data) + tensor.bytes,
                  (*opened)->file().bytes().end());
      }
    }
    whole[i] = old;
  }
  EXPECT_GT(refused, 300u);
}

TEST_F(SafetensorsTest, DetectsAFileThatIsCutOffAfterItWasMapped) {
  const auto opened =
      Open(SafetensorsBytes(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4));
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_TRUE((*opened)->file().CheckWhole().ok());
  std::filesystem::resize_file(path_, 20);
  const absl::Status status = (*opened)->file().CheckWhole();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("broken.safetensors: has 20 bytes, had "), HasSubstr("truncated")));
}

TEST_F(SafetensorsTest, RefusesFilesThatAreNotRegular) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(std::string(Safetensors::Open(path_).status().message()),
              HasSubstr("broken.safetensors: is not a regular file"));
  EXPECT_THAT(std::string(Safetensors::Open(folder_.path()).status().message()),
              HasSubstr("is not a regular file"));
  EXPECT_EQ(Safetensors::Open(folder_ / "absent").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tandem

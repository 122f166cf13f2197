#include "common/retrieval/retrieval_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "common/retrieval/retrieval_builder.h"
#include "common/retrieval/retrieval_format.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Documents = std::vector<std::vector<int32_t>>;

constexpr uint32_t kVocabularySize = 100;

class RetrievalIndexTest : public ::testing::Test {
 protected:
  std::unique_ptr<RetrievalIndex> Make(const Documents& documents, int num_threads = 1) {
    auto builder = RetrievalBuilder::Create(path());
    EXPECT_TRUE(builder.ok()) << builder.status();
    for (const std::vector<int32_t>& document : documents) {
      EXPECT_TRUE((*builder)->Add(document).ok());
      (*builder)->EndDocument();
    }
    EXPECT_EQ((*builder)->num_documents(), documents.size());
    EXPECT_TRUE((*builder)->Write({7}, num_threads, {}).ok());
    auto index = RetrievalIndex::Open(path());
    EXPECT_TRUE(index.ok()) << index.status();
    return *std::move(index);
  }

  std::string ReadFile() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void WriteFile(const std::string& bytes) const {
    std::ofstream(path(), std::ios::binary | std::ios::trunc) << bytes;
  }
  std::string Complaint() const {
    return std::string(RetrievalIndex::Open(path()).status().message());
  }

  std::filesystem::path path() const { return folder_ / "index"; }

 private:
  testing::TempDir folder_;
};

TEST_F(RetrievalIndexTest, ContinuesTheLongestMatch) {
  const auto index = Make({{1, 2, 3, 4, 5}, {9, 2, 3, 8, 8}});
  EXPECT_EQ(index->num_tokens(), 10);
  EXPECT_EQ(index->vocabulary()[0], 7);
  const RetrievedText of_first =
      *index->Find(std::vector<int32_t>{50, 1, 2, 3}, 8, kVocabularySize);
  EXPECT_THAT(of_first.token_ids, ElementsAre(4, 5));
  EXPECT_EQ(of_first.match_length, 3);
  const RetrievedText of_second = *index->Find(std::vector<int32_t>{9, 2, 3}, 1, kVocabularySize);
  EXPECT_THAT(of_second.token_ids, ElementsAre(8));
}

TEST_F(RetrievalIndexTest, ATreeHasWhatFollowedInOtherPlaces) {
  const auto index = Make({{1, 2, 3, 4}, {1, 2, 3, 5}, {1, 2, 6, 7}});
  const RetrievedText tree = *index->Find(std::vector<int32_t>{1, 2}, 2, kVocabularySize, 8);
  EXPECT_THAT(tree.token_ids, ::testing::UnorderedElementsAre(3, 4, 5, 6, 7));
  EXPECT_EQ(tree.token_ids[0], 3) << "the most frequent one";
  EXPECT_EQ(tree.parents.size(), 5u);
  EXPECT_THAT(index->Find(std::vector<int32_t>{1, 2}, 2, kVocabularySize)->parents, IsEmpty());
}

TEST_F(RetrievalIndexTest, WhatIsNotThereIsNotContinued) {
  const auto index = Make({{1, 2, 3}});
  EXPECT_THAT(index->Find({}, 8, kVocabularySize)->token_ids, IsEmpty());
  EXPECT_THAT(index->Find(std::vector<int32_t>{2}, 8, kVocabularySize)->token_ids, IsEmpty());
  EXPECT_THAT(index->Find(std::vector<int32_t>{3, 2}, 8, kVocabularySize)->token_ids, IsEmpty());
  // The end of a document is continued by nothing.
  EXPECT_THAT(index->Find(std::vector<int32_t>{2, 3}, 8, kVocabularySize)->token_ids, IsEmpty());
}

TEST_F(RetrievalIndexTest, TheMostFrequentContinuationCounts) {
  const auto index = Make({{1, 2, 5, 6}, {1, 2, 7, 8}, {1, 2, 7, 9}, {1, 2, 7, 8}});
  EXPECT_THAT(index->Find(std::vector<int32_t>{1, 2}, 8, kVocabularySize)->token_ids,
              ElementsAre(7, 8));
}

TEST_F(RetrievalIndexTest, AContinuationOfFewPlacesEnds) {
  Documents documents;
  for (int32_t i = 10; i < 20; ++i) documents.push_back({1, 2, 3, i, 4});
  EXPECT_THAT(Make(documents)->Find(std::vector<int32_t>{1, 2}, 8, kVocabularySize)->token_ids,
              ElementsAre(3));
}

TEST_F(RetrievalIndexTest, IdsBeyondTheVocabularyAreNotProposed) {
  const auto index = Make({{1, 2, 3, 4}});
  EXPECT_THAT(index->Find(std::vector<int32_t>{1, 2}, 8, 4)->token_ids, ElementsAre(3));
}

// The longest end of the context that stands in the documents and goes on there, with plain loops.
uint32_t LongestMatch(const Documents& documents, const std::vector<int32_t>& context) {
  uint32_t longest = 0;
  for (const std::vector<int32_t>& document : documents) {
    for (size_t end = 1; end <= document.size(); ++end) {
      uint32_t length = 0;
      while (length < std::min({end, context.size(), size_t{RetrievalIndex::kMostMatch}}) &&
             document[end - 1 - length] == context[context.size() - 1 - length]) {
        ++length;
      }
      longest = std::max(longest, length);
    }
  }
  return longest < RetrievalIndex::kLeastMatch ? 0 : longest;
}

TEST_F(RetrievalIndexTest, FindsWhatPlainLoopsFind) {
  std::mt19937 random(3);
  size_t num_found = 0;
  for (const int num_tokens : {2, 3, 8}) {
    Documents documents(5);
    for (std::vector<int32_t>& document : documents) {
      for (int i = 0; i < 400; ++i) {
        // Repeated pieces, some longer than texts are compared.
        if (i % 97 == 90 && i > 97) {
          document.insert(document.end(), document.begin(), document.begin() + 60);
        }
        document.push_back(static_cast<int32_t>(random() % static_cast<unsigned>(num_tokens)));
      }
    }
    const auto index = Make(documents, 3);
    for (int trial = 0; trial < 500; ++trial) {
      std::vector<int32_t> context;
      const size_t length = random() % 45;
      if (trial % 2 == 0) {
        const std::vector<int32_t>& document = documents[random() % documents.size()];
        const size_t begin = random() % (document.size() - length);
        context.assign(document.begin() + static_cast<ptrdiff_t>(begin),
                       document.begin() + static_cast<ptrdiff_t>(begin + length));
      } else {
        for (size_t i = 0; i < length; ++i) {
          context.push_back(static_cast<int32_t>(random() % static_cast<unsigned>(num_tokens)));
        }
      }
      const RetrievedText found = *index->Find(context, 4, kVocabularySize);
      ASSERT_EQ(found.match_length, LongestMatch(documents, context));
      if (found.token_ids.empty()) continue;
      ++num_found;
      context.insert(context.end(), found.token_ids.begin(), found.token_ids.end());
      EXPECT_GE(
          LongestMatch(documents, context),
          std::min<uint32_t>(found.match_length + static_cast<uint32_t>(found.token_ids.size()),
                             RetrievalIndex::kMostMatch));
    }
  }
  EXPECT_GT(num_found, 700);
}

TEST_F(RetrievalIndexTest, TheFileDoesNotDependOnThreads) {
  Documents documents(1);
  std::mt19937 random(4);
  for (int i = 0; i < 3000; ++i) documents[0].push_back(static_cast<int32_t>(random() % 7));
  Make(documents, 1);
  const std::string one = ReadFile();
  Make(documents, 4);
  EXPECT_EQ(ReadFile(), one);
}

TEST_F(RetrievalIndexTest, RefusesWhatIsNoWholeIndex) {
  EXPECT_EQ(RetrievalIndex::Open(path()).status().code(), absl::StatusCode::kNotFound);
  Make({{1, 2, 3}});
  const std::string whole = ReadFile();
  for (const size_t size : {size_t{0}, size_t{10}, size_t{63}}) {
    WriteFile(whole.substr(0, size));
    EXPECT_THAT(Complaint(), HasSubstr("is no retrieval index"));
  }
  WriteFile(whole.substr(0, whole.size() - 1));
  EXPECT_THAT(Complaint(), HasSubstr("has 91 bytes, and its header promises 92"));
  WriteFile(whole + "x");
  EXPECT_THAT(Complaint(), HasSubstr("has 93 bytes, and its header promises 92"));
  std::string other = whole;
  other[8] = 2;
  WriteFile(other);
  EXPECT_THAT(Complaint(), HasSubstr("version 2, want 1"));
  other = whole;
  other[23] = 1;  // the highest byte of num_tokens
  WriteFile(other);
  EXPECT_THAT(Complaint(), HasSubstr("the header is damaged"));
  WriteFile(whole);
  EXPECT_EQ((*RetrievalBuilder::Create(path()))->Write({}, 1, {}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RetrievalBuilder::Create("/none/index").status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(RetrievalBuilder::Create("/dev/null").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RetrievalBuilder::Create(path().parent_path()).status().code(),
            absl::StatusCode::kInvalidArgument);
  WriteFile("something precious");
  EXPECT_THAT(std::string(RetrievalBuilder::Create(path()).status().message()),
              HasSubstr("is no retrieval index, so it is not replaced"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path().parent_path()), {}), 1)
      << "a builder without an index leaves a file";
}

// Damage that the header does not show must not lead out of the file.
TEST_F(RetrievalIndexTest, DamagedContentIsHarmless) {
  Documents documents(1);
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) documents[0].push_back(static_cast<int32_t>(random() % 4));
  Make(documents);
  const std::string whole = ReadFile();
  for (int trial = 0; trial < 200; ++trial) {
    std::string damaged = whole;
    for (int i = 0; i < 40; ++i) {
      damaged[sizeof(RetrievalHeader) + random() % (damaged.size() - sizeof(RetrievalHeader))] =
          static_cast<char>(random());
    }
    WriteFile(damaged);
    const auto index = RetrievalIndex::Open(path());
    ASSERT_TRUE(index.ok());
    for (int32_t a = 0; a < 4; ++a) {
      const RetrievedText found =
          *(*index)->Find(std::vector<int32_t>{a, 1, 2}, 8, kVocabularySize);
      for (const int32_t id : found.token_ids) EXPECT_TRUE(id >= 0 && id < 100);
    }
  }
}

TEST_F(RetrievalIndexTest, AFileThatBecameShorterIsNoticed) {
  const auto index = Make({{1, 2, 3, 4}});
  std::filesystem::resize_file(path(), 70);
  const auto found = index->Find(std::vector<int32_t>{1, 2}, 8, kVocabularySize);
  EXPECT_EQ(found.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("became shorter"));
}

}  // namespace
}  // namespace tandem

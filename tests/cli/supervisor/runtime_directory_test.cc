#include "services/cli/supervisor/runtime_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

TEST(RuntimeDirectoryTest, IsPrivateAndIsRemovedWithItsContents) {
  const testing::TempDir parent;
  fs::path path;
  {
    const auto directory = RuntimeDirectory::CreateUnder(parent.path());
    ASSERT_TRUE(directory.ok()) << directory.status();
    path = (*directory)->path();
    struct stat info {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
    EXPECT_EQ((*directory)->SocketAddress("a.sock"), "unix:" + (path / "a.sock").string());
    std::ofstream(path / "left behind") << "x";
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(fs::is_empty(parent.path()));
}

TEST(RuntimeDirectoryTest, RemovesTheFolderOfAKilledSupervisor) {
  const testing::TempDir parent;
  const fs::path abandoned = parent / "tandem-run-abcdef";
  fs::create_directory(abandoned);
  std::ofstream(abandoned / "lock") << "";
  const fs::path unrelated = parent / "tandem-run-unlocked";
  fs::create_directory(unrelated);
  const auto directory = RuntimeDirectory::CreateUnder(parent.path());
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_FALSE(fs::exists(abandoned));
  EXPECT_TRUE(fs::exists(unrelated));  // without a lock, the folder may belong to others
}

TEST(RuntimeDirectoryTest, LeavesTheFoldersOfRunningSupervisorsAlone) {
  const testing::TempDir parent;
  const auto first = RuntimeDirectory::CreateUnder(parent.path());
  const auto second = RuntimeDirectory::CreateUnder(parent.path());
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE(fs::exists((*first)->path()));
  EXPECT_NE((*first)->path(), (*second)->path());
}

TEST(RuntimeDirectoryTest, SaysWhereTheFolderCannotBeMade) {
  const auto directory = RuntimeDirectory::CreateUnder("/nonexistent/folder");
  ASSERT_FALSE(directory.ok());
  EXPECT_NE(directory.status().message().find("/nonexistent/folder"), absl::string_view::npos);
}

}  // namespace
}  // namespace tandem::cli

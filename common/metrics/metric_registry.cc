#include "common/metrics/metric_registry.h"

#include <dirent.h>
#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

#include "common/metrics/catalogue.h"

namespace tandem {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

// proc(5), statm: size and resident set, in pages.
double ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  double size = 0;
  double resident = 0;
  file >> size >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double NumDescriptors() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (folder == nullptr) return 0;
  int num_entries = 0;
  while (readdir(folder.get()) != nullptr) ++num_entries;
  return num_entries - 3;  // without ".", ".." and the descriptor of the folder itself
}

// proc(5): starttime, the 22nd field of stat, in ticks since the machine started.
double StartTime() {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::istringstream fields(text.substr(std::min(text.size(), text.rfind(')') + 1)));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double ticks = 0;
  fields >> ticks;
  timespec since_boot{};
  clock_gettime(CLOCK_BOOTTIME, &since_boot);
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const double up =
      static_cast<double>(since_boot.tv_sec) + 1e-9 * static_cast<double>(since_boot.tv_nsec);
  return now - up + ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

prometheus::MetricFamily Family(const MetricInfo& info, double value) {
  prometheus::ClientMetric metric;
  metric.counter.value = value;
  metric.gauge.value = value;
  return {.name = info.name,
          .help = info.help,
          .type = info.type == MetricType::kCounter ? prometheus::MetricType::Counter
                                                    : prometheus::MetricType::Gauge,
          .metric = {metric}};
}

}  // namespace

class MetricRegistry::ProcessMetrics final : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override {
    return {Family(metrics::kProcessCpu, CpuSeconds()),
            Family(metrics::kProcessMemory, ResidentBytes()),
            Family(metrics::kProcessFds, NumDescriptors()),
            Family(metrics::kProcessStart, started_at_)};
  }

 private:
  const double started_at_ = StartTime();
};

MetricRegistry::MetricRegistry(const std::string& process, const std::string& version,
                               MetricLabels labels)
    : labels_(std::move(labels)),
      registry_(std::make_shared<prometheus::Registry>()),
      process_(std::make_unique<ProcessMetrics>()) {
  Gauge(metrics::kBuildInfo, {{"process", process}, {"version", version}}).Set(1);
}

MetricRegistry::~MetricRegistry() = default;

prometheus::Counter& MetricRegistry::Counter(const MetricInfo& info, const MetricLabels& labels) {
  return prometheus::BuildCounter()
      .Name(info.name)
      .Help(info.help)
      .Labels(labels_)
      .Register(*registry_)
      .Add(labels);
}

prometheus::Gauge& MetricRegistry::Gauge(const MetricInfo& info, const MetricLabels& labels) {
  return prometheus::BuildGauge()
      .Name(info.name)
      .Help(info.help)
      .Labels(labels_)
      .Register(*registry_)
      .Add(labels);
}

prometheus::Histogram& MetricRegistry::Histogram(const MetricInfo& info,
                                                 const MetricLabels& labels) {
  return prometheus::BuildHistogram()
      .Name(info.name)
      .Help(info.help)
      .Labels(labels_)
      .Register(*registry_)
      .Add(labels,
           prometheus::Histogram::BucketBoundaries(info.buckets.begin(), info.buckets.end()));
}

AdminRoutes MetricsRoutes(const MetricRegistry& registry) {
  return {{"/metrics",
           [&registry](const std::string&) {
             return AdminResponse{.body = registry.Serialize(),
                                  .content_type = "text/plain; version=0.0.4; charset=utf-8"};
           }},
          {"/healthz", [](const std::string&) { return AdminResponse{.body = "ok\n"}; }}};
}

std::string MetricRegistry::Serialize() const {
  std::vector<prometheus::MetricFamily> families = registry_->Collect();
  for (prometheus::MetricFamily& family : process_->Collect()) {
    families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace tandem

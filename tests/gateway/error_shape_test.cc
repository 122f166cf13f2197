#include "services/gateway/api/answers/error_shape.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "common/status.h"
#include "services/gateway/api/fields/json_body.h"

namespace tandem::gateway {
namespace {

using Code = absl::StatusCode;

ApiError Of(Code code, const std::string& message, bool is_from_router = true) {
  return ErrorOf({.status = absl::Status(code, message), .is_from_router = is_from_router});
}

TEST(ErrorShapeTest, EachCodeOfGrpcHasARow) {
  std::set<std::pair<Code, bool>> rows;
  std::set<Code> codes;
  for (const ErrorRow& row : ErrorTable()) {
    EXPECT_TRUE(rows.insert({row.code, row.says_when_to_retry}).second);
    codes.insert(row.code);
  }
  for (int code = 1; code <= 16; ++code)
    EXPECT_TRUE(codes.contains(static_cast<Code>(code))) << code;
}

TEST(ErrorShapeTest, CodesOfGrpcHaveTheirStatus) {
  EXPECT_EQ(Of(Code::kInvalidArgument, "x").http, 400);
  EXPECT_EQ(Of(Code::kUnauthenticated, "x").http, 401);
  EXPECT_EQ(Of(Code::kNotFound, "x").http, 404);
  EXPECT_EQ(Of(Code::kResourceExhausted, "x").http, 413);
  EXPECT_EQ(Of(Code::kCancelled, "x").http, 503);
  EXPECT_EQ(Of(Code::kInternal, "x").http, 500);
  EXPECT_EQ(Of(Code::kUnavailable, "x").http, 503);
  EXPECT_EQ(Of(Code::kDeadlineExceeded, "x").http, 504);
  EXPECT_EQ(Of(static_cast<Code>(77), "x").http, 500);
}

TEST(ErrorShapeTest, AFullQueueSaysWhenToTryAgain) {
  CallEnd end{.status = ResourceExhausted("the queue is full"),
              .retry_milliseconds = 1200,
              .is_from_router = true};
  const ApiError error = ErrorOf(end);
  EXPECT_EQ(error.http, 429);
  EXPECT_EQ(error.retry_seconds, 2);
  EXPECT_EQ(error.code, "rate_limit_exceeded");
  EXPECT_EQ(Of(Code::kUnavailable, "x").retry_seconds, 1);
  EXPECT_FALSE(Of(Code::kInvalidArgument, "x").retry_seconds.has_value());
}

TEST(ErrorShapeTest, FieldsHaveTheirNamesOfHttp) {
  const ApiError error =
      Of(Code::kInvalidArgument, "sampling_params.top_p: got 2, allowed: more than 0, at most 1");
  EXPECT_EQ(error.message, "top_p: got 2, allowed: more than 0, at most 1");
  EXPECT_EQ(error.param, "top_p");
  EXPECT_EQ(Of(Code::kInvalidArgument, "prompt_token_ids[3]: got 9, allowed: 1").param, "prompt");
  EXPECT_EQ(Of(Code::kInvalidArgument, "something else: got lost").param, "");
  EXPECT_EQ(Of(Code::kInvalidArgument, "no field").param, "");
}

TEST(ErrorShapeTest, WhatGrpcSaysOfConnectionsIsNotForClients) {
  const std::string secret = "failed to connect to unix:/run/router.sock";
  for (const Code code : {Code::kUnavailable, Code::kInternal, Code::kUnknown, Code::kCancelled,
                          Code::kResourceExhausted, Code::kDeadlineExceeded}) {
    EXPECT_EQ(Of(code, secret, false).message.find("router.sock"), std::string::npos);
    EXPECT_EQ(Of(code, "the router's words", true).message, "the router's words");
  }
}

TEST(ErrorShapeTest, BodiesHaveOpenAisShape) {
  const Json error = Json::parse(ErrorBody(Of(Code::kNotFound, "model: got \"x\", served: \"y\"")));
  EXPECT_EQ(error, Json::parse(R"({"error": {"message": "model: got \"x\", served: \"y\"",
    "type": "invalid_request_error", "param": "model", "code": "model_not_found"}})"));
  const Json plain = Json::parse(ErrorBody(HttpError(400, "bad \xff")));
  EXPECT_TRUE(plain["error"]["param"].is_null() && plain["error"]["code"].is_null());
}

TEST(ErrorShapeTest, APathThatIsNearlyRightIsNamed) {
  EXPECT_EQ(NoSuchPath("").message, "there is no such path");
  EXPECT_EQ(NoSuchPath("/v1/models").message, "there is no such path; did you mean /v1/models");
  EXPECT_EQ(NoSuchPath("").http, 404);
}

}  // namespace
}  // namespace tandem::gateway

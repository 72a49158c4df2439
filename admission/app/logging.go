package app

import (
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// The values of --log-format.
const (
	logJSON = "json"
	logText = "text"
)

var logLevels = map[string]slog.Level{
	"debug": slog.LevelDebug,
	"info":  slog.LevelInfo,
	"warn":  slog.LevelWarn,
	"error": slog.LevelError,
}

// newLogger makes the one logger of the program, and has the libraries use it too. Options must be valid.
func newLogger(options *Options, out io.Writer) logr.Logger {
	settings := &slog.HandlerOptions{Level: logLevels[options.LogLevel], ReplaceAttr: plainLevel}
	var handler slog.Handler = slog.NewJSONHandler(out, settings)
	if options.LogFormat == logText {
		handler = slog.NewTextHandler(out, settings)
	}
	slog.SetDefault(slog.New(handler)) // net/http writes to the standard library's logger
	logger := logr.FromSlogHandler(handler)
	ctrl.SetLogger(logger)
	klog.SetLoggerWithOptions(logger, klog.ContextualLogger(true))
	return logger
}

// plainLevel writes every verbosity of logr as DEBUG, where slog would write DEBUG+3.
func plainLevel(_ []string, attribute slog.Attr) slog.Attr {
	level, ok := attribute.Value.Any().(slog.Level)
	if attribute.Key == slog.LevelKey && ok && level < slog.LevelInfo {
		attribute.Value = slog.StringValue(slog.LevelDebug.String())
	}
	return attribute
}

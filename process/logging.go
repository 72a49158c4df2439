package process

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// The values of --log-format.
const (
	formatJSON = "json"
	formatText = "text"
)

var levels = map[string]slog.Level{
	"debug": slog.LevelDebug,
	"info":  slog.LevelInfo,
	"warn":  slog.LevelWarn,
	"error": slog.LevelError,
}

// Logging is how a program logs.
type Logging struct {
	// Level is debug, info, warn or error.
	Level string
	// Format is json or text.
	Format string
}

// AddFlags adds --log-level and --log-format.
func (l *Logging) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&l.Level, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&l.Format, "log-format", formatJSON, "json or text")
}

// Validate names the flag whose value cannot be used.
func (l *Logging) Validate() error {
	if _, known := levels[l.Level]; !known {
		return fmt.Errorf("--log-level is %q: it must be debug, info, warn or error", l.Level)
	}
	if l.Format != formatJSON && l.Format != formatText {
		return fmt.Errorf("--log-format is %q: it must be json or text", l.Format)
	}
	return nil
}

// Start makes the one logger of the program, and has the libraries use it too. l must be valid.
func (l *Logging) Start(out io.Writer) logr.Logger {
	settings := &slog.HandlerOptions{Level: levels[l.Level], ReplaceAttr: plainLevel}
	var handler slog.Handler = slog.NewJSONHandler(out, settings)
	if l.Format == formatText {
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

package source

// Limits of an artifact. They are far above what a release needs and keep a hostile archive from filling memory or disk.
const (
	// MaxDownload bounds the compressed archive, in bytes.
	MaxDownload = 64 << 20
	// MaxInflated bounds the archive once inflated, in bytes, headers included.
	MaxInflated = 512 << 20
	// MaxEntry bounds one file, in bytes.
	MaxEntry = 16 << 20
	// MaxEntries bounds the number of files and directories, directories that are only implied included.
	MaxEntries = 50_000
	// MaxPath bounds the path of an entry, in bytes.
	MaxPath = 1024
	// MaxDepth bounds how many directories deep an entry is.
	MaxDepth = 64
	// DefaultCacheSize is what a Fetcher keeps on disk unless told otherwise, in bytes.
	DefaultCacheSize = 2 << 30
)

// limits are what bounds the unpacking of one archive; tests use smaller ones.
type limits struct {
	inflated int64
	entry    int64
	entries  int
}

var defaultLimits = limits{inflated: MaxInflated, entry: MaxEntry, entries: MaxEntries}

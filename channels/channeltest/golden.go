package channeltest

func writeGolden(dir string, s Spec) error { return nil }

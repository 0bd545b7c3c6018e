// Verifies a ledger with Go's own transparency-log code: interop DIRECTORY VERIFIER-KEY OLD-CHECKPOINT.
//
// Signature, root, every tile, every entry, the consistency with an older checkpoint and an inclusion proof of every
// 97th entry. None of it is ours but the paths, which golang.org/x/mod spells with the tile's height.
package main

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"interop/note"
	"interop/tlog"
)

type directory string

func (d directory) Height() int                     { return 8 }
func (d directory) SaveTiles([]tlog.Tile, [][]byte) {}
func (d directory) ReadTiles(tiles []tlog.Tile) (contents [][]byte, err error) {
	for _, tile := range tiles {
		content, err := os.ReadFile(filepath.Join(string(d), strings.Replace(tile.Path(), "tile/8/", "tile/", 1)))
		if err != nil {
			return nil, err
		}
		contents = append(contents, content)
	}
	return contents, nil
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func checkpoint(path string, verifier note.Verifier) (tree tlog.Tree) {
	signed := must(note.Open(must(os.ReadFile(path)), note.VerifierList(verifier)))
	lines := strings.Split(signed.Text, "\n")
	tree.N = must(strconv.ParseInt(lines[1], 10, 64))
	copy(tree.Hash[:], must(base64.StdEncoding.DecodeString(lines[2])))
	return tree
}

func bundle(dir string, number, size int64) (entries [][]byte) {
	width := int(min(256, size-number*256))
	tile := tlog.Tile{H: 8, L: 0, N: number, W: width}
	content := must(os.ReadFile(filepath.Join(dir, strings.Replace(tile.Path(), "tile/8/0/", "tile/entries/", 1))))
	for len(content) > 0 {
		end := 2 + int(binary.BigEndian.Uint16(content))
		entries, content = append(entries, content[2:end]), content[end:]
	}
	if len(entries) != width {
		log.Fatalf("bundle %d has %d entries, expected %d", number, len(entries), width)
	}
	return entries
}

func main() {
	dir, verifier := os.Args[1], must(note.NewVerifier(os.Args[2]))
	tree, old := checkpoint(filepath.Join(dir, "checkpoint"), verifier), checkpoint(os.Args[3], verifier)
	hashes := tlog.TileHashReader(tree, directory(dir))
	if must(tlog.TreeHash(tree.N, hashes)) != tree.Hash {
		log.Fatal("the tiles have another root")
	}
	check(tlog.CheckTree(must(tlog.ProveTree(tree.N, old.N, hashes)), tree.N, tree.Hash, old.N, old.Hash))
	for first := int64(0); first < tree.N; first += 256 {
		entries := bundle(dir, first/256, tree.N)
		places := make([]int64, len(entries))
		for slot := range entries {
			places[slot] = tlog.StoredHashIndex(0, first+int64(slot))
		}
		leaves := must(hashes.ReadHashes(places))
		for slot, entry := range entries {
			index := first + int64(slot)
			if tlog.RecordHash(entry) != leaves[slot] {
				log.Fatalf("entry %d is not the one in the tree", index)
			}
			if index%97 == 0 {
				proof := must(tlog.ProveRecord(tree.N, index, hashes))
				check(tlog.CheckRecord(proof, tree.N, tree.Hash, index, leaves[slot]))
			}
		}
	}
	fmt.Printf("%d entries agree; extends %d\n", tree.N, old.N)
}

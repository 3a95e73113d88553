// Message sends messages at fixed times, or receives them and records their delivery latency, over
// TCP, UDP or QUIC. Both ends must share a clock.
//
//	message receive -transport tcp -listen 10.0.0.2:7000 -messages 100 -records records.csv
//	message send -transport tcp -to 10.0.0.2:7000 -messages 100
//
// The receiver prints "ready" when it listens, and "done" after the last message. The sender prints
// "ready" when it is connected, and starts at a line on standard input. Both wait for the end of
// standard input, and print the processor time since the start in nanoseconds.
package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
)

const (
	// Bytes of a message's number and due time.
	header = 16
	// Wait for the first message: the sender may start much later.
	firstTimeout = 10 * time.Minute
)

var (
	transport = flag.String("transport", "tcp", "tcp, udp, quic (one stream) or quic-streams (one per message)")
	listen    = flag.String("listen", "", "address to receive at")
	to        = flag.String("to", "", "address to send to")
	messages  = flag.Uint64("messages", 1000, "number of messages")
	size      = flag.Int("size", 120, "bytes of a message")
	interval  = flag.Duration("itt", 30*time.Millisecond, "time between messages")
	timeout   = flag.Duration("timeout", 30*time.Second, "stop receiving after this time without a message")
	path      = flag.String("records", "", "write number and latency in nanoseconds of each message to this file")
	config    = quic.Config{MaxIncomingUniStreams: 1 << 20}
	protocols = []string{"message"}
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("message: ")
	if len(os.Args) < 2 {
		log.Fatal("expected `send` or `receive`")
	}
	role := map[string]func() error{"send": send, "receive": receive}[os.Args[1]]
	if role == nil {
		log.Fatalf("invalid role `%s`: expected `send` or `receive`", os.Args[1])
	}
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil || *size < header {
		log.Fatalf("-size: expected at least %d", header)
	}
	if err := role(); err != nil {
		log.Fatal(err)
	}
}

// Returns the processor time of this process so far.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func send() error {
	write, err := dial()
	if err != nil {
		return err
	}
	fmt.Println("ready")
	input := bufio.NewReader(os.Stdin)
	if _, err := input.ReadString('\n'); err != nil {
		return err
	}
	used := processorTime()
	message := make([]byte, *size)
	due := time.Now()
	for number := range *messages {
		time.Sleep(time.Until(due))
		// Random bytes, which no tool can compress.
		rand.Read(message[header:])
		binary.BigEndian.PutUint64(message, number)
		binary.BigEndian.PutUint64(message[8:], uint64(due.UnixNano()))
		if err := write(message); err != nil {
			return err
		}
		due = due.Add(*interval)
	}
	_, err = io.Copy(io.Discard, input)
	fmt.Println(int64(processorTime() - used))
	return err
}

// Connects, and returns a function that writes a message.
func dial() (func([]byte) error, error) {
	var writer io.Writer
	var err error
	switch *transport {
	case "tcp", "udp":
		writer, err = net.Dial(*transport, *to)
	default:
		var connection *quic.Conn
		ends := &tls.Config{InsecureSkipVerify: true, NextProtos: protocols}
		connection, err = quic.DialAddr(context.Background(), *to, ends, &config)
		if err == nil && *transport == "quic-streams" {
			return func(message []byte) error { return writeStream(connection, message) }, nil
		}
		if err == nil {
			writer, err = connection.OpenUniStream()
		}
	}
	return func(message []byte) error {
		_, err := writer.Write(message)
		return err
	}, err
}

func writeStream(connection *quic.Conn, message []byte) error {
	stream, err := connection.OpenUniStream()
	if err != nil {
		return err
	}
	if _, err := stream.Write(message); err != nil {
		return err
	}
	return stream.Close()
}

func receive() error {
	records, err := os.Create(*path)
	if err != nil {
		return err
	}
	var used time.Duration
	var lock sync.Mutex
	received := uint64(0)
	add := func(message []byte) bool {
		lock.Lock()
		defer lock.Unlock()
		if received == 0 {
			used = processorTime()
		}
		received++
		sent := binary.BigEndian.Uint64(message[8:])
		number := binary.BigEndian.Uint64(message)
		_, err = fmt.Fprintf(records, "%d,%d\n", number, time.Now().UnixNano()-int64(sent))
		return err == nil && received < *messages
	}
	if failed := readMessages(add); failed != nil {
		log.Print(failed)
	}
	fmt.Println("done")
	io.Copy(io.Discard, os.Stdin)
	fmt.Println(int64(processorTime() - used))
	return err
}

// A stream or a socket with datagrams.
type deadlineReader interface {
	io.Reader
	SetReadDeadline(time.Time) error
}

// Reads messages until `add` returns false.
func readMessages(add func([]byte) bool) error {
	switch *transport {
	case "tcp":
		listener, err := net.Listen("tcp", *listen)
		if err != nil {
			return err
		}
		fmt.Println("ready")
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		return readStream(connection.(deadlineReader), add)
	case "udp":
		socket, err := net.ListenPacket("udp", *listen)
		if err != nil {
			return err
		}
		fmt.Println("ready")
		return readStream(socket.(deadlineReader), add)
	}
	certificate, err := certificate()
	if err != nil {
		return err
	}
	ends := &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: protocols}
	listener, err := quic.ListenAddr(*listen, ends, &config)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	connection, err := listener.Accept(context.Background())
	if err != nil {
		return err
	}
	if *transport == "quic" {
		stream, err := connection.AcceptUniStream(context.Background())
		if err != nil {
			return err
		}
		return readStream(stream, add)
	}
	return readStreams(connection, add)
}

func readStream(reader deadlineReader, add func([]byte) bool) error {
	message := make([]byte, *size)
	for wait := firstTimeout; ; wait = *timeout {
		reader.SetReadDeadline(time.Now().Add(wait))
		if _, err := io.ReadFull(reader, message); err != nil {
			return err
		}
		if !add(message) {
			return nil
		}
	}
}

// Reads one message from each stream.
func readStreams(connection *quic.Conn, add func([]byte) bool) error {
	all, stop := context.WithCancel(context.Background())
	defer stop()
	for wait := firstTimeout; ; wait = *timeout {
		next, cancel := context.WithTimeout(all, wait)
		stream, err := connection.AcceptUniStream(next)
		cancel()
		if all.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			message := make([]byte, *size)
			if _, err := io.ReadFull(stream, message); err == nil && !add(message) {
				stop()
			}
		}()
	}
}

// Returns a certificate that this process signed itself.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key}, err
}

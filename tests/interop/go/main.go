// A default producer of RocketMQ's Go client that sends without a pause, one message after another.
//
//	producer NAMESERVERS TOPIC SECONDS [PAUSE_MS]
//
// Each send is a line of JSON: when it began and ended (ms), its key, what the client said of it, and
// the message id. The first line that says SEND_OK tells that it is under way.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type line struct {
	Key    string `json:"key"`
	Begin  int64  `json:"begin"`
	End    int64  `json:"end"`
	Result string `json:"result"`
	MsgID  string `json:"msgId"`
}

func main() {
	rlog.SetLogLevel("fatal")
	names, topic := strings.Split(os.Args[1], ";"), os.Args[2]
	seconds, err := strconv.ParseFloat(os.Args[3], 64)
	check(err)
	pause := 0
	if len(os.Args) > 4 {
		pause, err = strconv.Atoi(os.Args[4])
		check(err)
	}
	client, err := rocketmq.NewProducer(
		producer.WithNameServer(names), producer.WithGroupName("interop-go"),
	)
	check(err)
	check(client.Start())
	out := bufio.NewWriter(os.Stdout)
	stop := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	for number := 0; time.Now().Before(stop); number++ {
		key := fmt.Sprintf("go-%d-%d", os.Getpid(), number)
		message := primitive.NewMessage(topic, []byte(key))
		message.WithKeys([]string{key})
		said := line{Key: key, Begin: time.Now().UnixMilli()}
		answer, err := client.SendSync(context.Background(), message)
		said.End = time.Now().UnixMilli()
		switch {
		case err != nil:
			said.Result = err.Error()
		case answer.Status == primitive.SendOK:
			said.Result, said.MsgID = "SEND_OK", answer.MsgID
		default:
			said.Result, said.MsgID = fmt.Sprintf("status %d", answer.Status), answer.MsgID
		}
		text, err := json.Marshal(said)
		check(err)
		_, err = out.Write(append(text, '\n'))
		check(err)
		check(out.Flush())
		time.Sleep(time.Duration(pause) * time.Millisecond)
	}
	check(client.Shutdown())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

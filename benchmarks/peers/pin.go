package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"

	"github.com/distlock/locker/benchmarks/internal/rig"
)

var allowedCores = regexp.MustCompile(`Cpus_allowed_list:\s*((\d+)\S*)`)

// pin keeps a server on one core until the stage ends, and returns the command that
// starts a process there. It needs Linux.
func pin(stage *rig.Stage, pid int) (by []string, err error) {
	status, _ := os.ReadFile("/proc/self/status")
	cores := allowedCores.FindSubmatch(status)
	if cores == nil {
		return nil, errors.New("there is no list of cores to choose one from")
	}
	taskset := func(cores []byte) error {
		out, err := exec.Command("taskset", "-acp", string(cores), strconv.Itoa(pid)).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("taskset: %w %s", err, out)
		}
		return err
	}
	stage.Cleanup(func() { _ = taskset(cores[1]) }) // what was possible before is possible again
	return []string{"taskset", "-c", string(cores[2])}, taskset(cores[2])
}

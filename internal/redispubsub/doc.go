// Package redispubsub subscribes to channels of a Redis deployment: one channel for each key,
// all of them on one connection to a node, which is there only while somebody listens.
package redispubsub
